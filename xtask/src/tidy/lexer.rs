//! Rust source in views of equal length, so that no rule for code trips over text in a string or comment.

/// What a character of the source is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// One file, with what each view does not show replaced by spaces; lines and character positions agree.
#[derive(Debug)]
pub(super) struct Views {
    /// Neither comments nor the insides of strings and characters.
    pub(super) code: Vec<char>,
    /// Comments only.
    pub(super) comments: Vec<char>,
    /// All but comments.
    pub(super) literals: Vec<char>,
}

/// Splits a source file. Source that does not compile still comes out with the right number of lines.
pub(super) fn split(text: &str) -> Views {
    let mut lexer = Lexer { input: text.chars().collect(), at: 0, kinds: Vec::with_capacity(text.len()) };
    while lexer.at < lexer.input.len() {
        lexer.step();
    }
    let view = |shown: &[Kind]| {
        let show = |(&character, kind): (&char, &Kind)| match character {
            '\n' => '\n',
            _ if shown.contains(kind) => character,
            _ => ' ',
        };
        lexer.input.iter().zip(&lexer.kinds).map(show).collect()
    };
    Views {
        code: view(&[Kind::Code]),
        comments: view(&[Kind::Comment]),
        literals: view(&[Kind::Code, Kind::Literal]),
    }
}

/// Whether the character can be part of an identifier.
pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

struct Lexer {
    input: Vec<char>,
    at: usize,
    kinds: Vec<Kind>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.input.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn take(&mut self, count: usize, kind: Kind) {
        let end = (self.at + count).min(self.input.len());
        self.kinds.resize(end, kind);
        self.at = end;
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (first, _) if is_word(first) => self.word(),
            _ => self.take(1, Kind::Code),
        }
    }

    fn line_comment(&mut self) {
        while self.at < self.input.len() && self.peek(0) != '\n' {
            self.take(1, Kind::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.input.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.take(2, Kind::Comment);
                }
                ('*', '/') => {
                    depth -= 1;
                    self.take(2, Kind::Comment);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.take(1, Kind::Comment),
            }
        }
    }

    /// From an opening `"` to the one that closes it; the quotes count as code.
    fn string(&mut self) {
        self.take(1, Kind::Code);
        while self.at < self.input.len() {
            match self.peek(0) {
                '\\' => self.take(2, Kind::Literal),
                '"' => return self.take(1, Kind::Code),
                _ => self.take(1, Kind::Literal),
            }
        }
    }

    /// After the `r` of a raw string: hashes, a quote, and on to a quote with as many hashes.
    fn raw_string(&mut self, hashes: usize) {
        self.take(hashes + 1, Kind::Code);
        while self.at < self.input.len() {
            if self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#') {
                return self.take(hashes + 1, Kind::Code);
            }
            self.take(1, Kind::Literal);
        }
    }

    /// A character literal, or the tick of a lifetime or label.
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.take(1, Kind::Code);
            self.take(2, Kind::Literal);
            while self.at < self.input.len() && self.peek(0) != '\'' && self.peek(0) != '\n' {
                self.take(1, Kind::Literal);
            }
            self.take(1, Kind::Code);
        } else if self.peek(2) == '\'' {
            self.take(1, Kind::Code);
            self.take(1, Kind::Literal);
            self.take(1, Kind::Code);
        } else {
            self.take(1, Kind::Code);
        }
    }

    /// An identifier, keyword or number; the prefix of a raw string leads on into the string.
    fn word(&mut self) {
        let start = self.at;
        while is_word(self.peek(0)) {
            self.take(1, Kind::Code);
        }
        let is_raw_prefix =
            matches!(self.input[start..self.at].iter().collect::<String>().as_str(), "r" | "br" | "cr");
        if is_raw_prefix {
            let hashes = (0..).take_while(|&ahead| self.peek(ahead) == '#').count();
            if self.peek(hashes) == '"' {
                self.raw_string(hashes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        split(text).code.into_iter().collect()
    }

    #[test]
    fn strings_and_comments_leave_only_their_room() {
        assert_eq!(code("a(\"unsafe\"); // unsafe"), "a(\"      \");          ");
        assert_eq!(code("/* a /* b */ c */ d"), "                  d");
    }

    #[test]
    fn a_comment_mark_in_a_string_is_no_comment() {
        assert_eq!(code("f(\"//\", x)"), "f(\"  \", x)");
        assert_eq!(code("f(\"\\\"//\", x)"), "f(\"    \", x)");
    }

    #[test]
    fn a_raw_string_ends_at_its_own_hashes() {
        assert_eq!(code("f(r#\"a\" // \"#, x)"), "f(r#\"      \"#, x)");
        assert_eq!(code("f(br\"\\\", x)"), "f(br\" \", x)");
        assert_eq!(code("r#fn()"), "r#fn()");
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code("fn f<'a>(x: &'a str, y: &'a str)"), "fn f<'a>(x: &'a str, y: &'a str)");
        assert_eq!(code("('{', '\\'', '\"', b'}')"), "(' ', '  ', ' ', b' ')");
        assert_eq!(code("'\\u{1F600}' {"), "'         ' {");
    }

    #[test]
    fn views_keep_every_line_and_agree_on_places() {
        let text = "a\n\"x\ny\" // é\n/* \n */ b\n";
        let views = split(text);
        for view in [&views.code, &views.comments, &views.literals] {
            assert_eq!(view.len(), text.chars().count());
            assert_eq!(view.iter().filter(|&&character| character == '\n').count(), 5);
        }
        assert_eq!(views.comments.iter().collect::<String>().lines().nth(2), Some("   // é"));
        assert_eq!(views.literals.iter().collect::<String>().lines().nth(1), Some("\"x"));
    }
}
