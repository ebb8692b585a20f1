//! Files that must be there, what the README shows, and paths that exist on one machine only.

use super::{Report, TextFile};

const REQUIRED: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"];
/// The two commands that do everything on a fresh machine.
const IN_README: [&str; 2] = ["cargo run --release --bin hicache -- demo", "cargo xtask test"];
/// Folders at the root of a file system that hold one person's or one machine's files.
const PRIVATE_FOLDERS: [&str; 3] = ["home", "root", "work"];
/// Crates that are stores, and the files that each has.
const STORES: [&str; 4] = ["hicache-file", "hicache-obj", "hicache-shm", "hicache-tier"];
const STORE_FILES: [&str; 4] = ["lib.rs", "options.rs", "store.rs", "backend.rs"];

/// Checks the tree as a whole and the text of every file in it.
pub(super) fn check(files: &[TextFile], report: &mut Report) {
    required(files, report);
    store_files(files, report);
    for file in files {
        private_paths(file, report);
    }
}

fn required(files: &[TextFile], report: &mut Report) {
    for path in REQUIRED {
        if !holds(files, path) {
            report.add(path, 1, "required-file", "write this file; every repository of its kind has it");
        }
    }
    for readme in files.iter().filter(|file| file.path == "README.md") {
        for command in IN_README.iter().filter(|command| !readme.text.contains(**command)) {
            report.add(&readme.path, 1, "readme", format!("show `{command}`; a newcomer needs nothing else"));
        }
    }
}

fn store_files(files: &[TextFile], report: &mut Report) {
    for store in STORES {
        if !holds(files, &format!("crates/{store}/Cargo.toml")) {
            continue;
        }
        for name in STORE_FILES {
            let path = format!("crates/{store}/src/{name}");
            if !holds(files, &path) {
                report.add(&path, 1, "store-files", "write this file; every store crate has it");
            }
        }
    }
}

fn holds(files: &[TextFile], path: &str) -> bool {
    files.iter().any(|file| file.path == path)
}

fn private_paths(file: &TextFile, report: &mut Report) {
    for (index, line) in file.text.lines().enumerate() {
        for folder in PRIVATE_FOLDERS {
            let needle = format!("/{folder}/");
            let is_absolute = |place: usize| {
                // `docs/home/x`, `./home/x` and `$X/home/x` are relative to something.
                let before = line[..place].chars().next_back();
                !before
                    .is_some_and(|character| character.is_alphanumeric() || "._-~})]*>/".contains(character))
            };
            if line.match_indices(&needle).any(|(place, _)| is_absolute(place)) {
                let advice =
                    format!("`{needle}..` is a path of one machine; use a relative or temporary one");
                report.add(&file.path, index + 1, "machine-path", advice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules_broken;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_missing_file_is_caught() {
        let mut files: Vec<TextFile> =
            REQUIRED.iter().map(|path| file(path, &IN_README.join("\n"))).collect();
        assert_eq!(rules_broken(|report| required(&files, report)), []);
        files.remove(4);
        assert_eq!(rules_broken(|report| required(&files, report)), [("required-file", 1)]);
    }

    #[test]
    fn a_readme_without_a_command_is_caught() {
        let mut files: Vec<TextFile> = REQUIRED.iter().map(|path| file(path, "")).collect();
        files[0].text = "Run `cargo xtask test`.".to_owned();
        assert_eq!(rules_broken(|report| required(&files, report)), [("readme", 1)]);
    }

    #[test]
    fn a_store_without_its_options_is_caught() {
        let mut files: Vec<TextFile> =
            STORE_FILES.iter().map(|name| file(&format!("crates/hicache-file/src/{name}"), "")).collect();
        files.push(file("crates/hicache-file/Cargo.toml", ""));
        assert_eq!(rules_broken(|report| store_files(&files, report)), []);
        files.remove(1);
        assert_eq!(rules_broken(|report| store_files(&files, report)), [("store-files", 1)]);
    }

    #[test]
    fn a_path_of_one_machine_is_caught() {
        for folder in PRIVATE_FOLDERS {
            for before in ["", "a: ", "\"", "file:", "`", "("] {
                let text = format!("x\n{before}/{folder}/me\n");
                let found = rules_broken(|report| private_paths(&file("a.md", &text), report));
                assert_eq!(found, [("machine-path", 2)], "{text}");
            }
            let text = format!("docs/{folder}/x ./{folder}/x $X/{folder}/x /{folder}s/x {folder}/x");
            assert_eq!(rules_broken(|report| private_paths(&file("a.md", &text), report)), []);
        }
    }
}
