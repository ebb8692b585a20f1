//! `cargo xtask tidy`: the rules of ARCHITECTURE.md that neither the compiler nor clippy knows.

mod banned;
mod layering;
mod lexer;
mod safety;
mod shape;
mod source;
mod tree;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use std::{fs, io};

use crate::workspace::Workspace;
use source::Source;

/// One place that breaks one rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

/// Collects what the rules find.
#[derive(Debug, Default)]
struct Report {
    violations: Vec<Violation>,
}

impl Report {
    fn add(&mut self, path: &str, line: usize, rule: &'static str, advice: impl Into<String>) {
        self.violations.push(Violation { path: path.to_owned(), line, rule, advice: advice.into() });
    }
}

/// A text file of the tree: path relative to the root, and content.
#[derive(Debug)]
struct TextFile {
    path: String,
    text: String,
}

/// Checks the tree and prints what is wrong with it.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let count = violations(workspace)?;
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the tree, prints one line per violation and one at the end, and answers how many there are.
pub(crate) fn violations(workspace: &Workspace) -> Result<usize, String> {
    let start = Instant::now();
    let files = text_files(&workspace.root)?;
    let report = check(workspace, &files);
    for Violation { path, line, rule, advice } in &report.violations {
        println!("{path}:{line}: {rule}: {advice}");
    }
    let count = report.violations.len();
    println!("tidy: {} files, {count} violations, {:.2} s", files.len(), start.elapsed().as_secs_f64());
    Ok(count)
}

fn check(workspace: &Workspace, files: &[TextFile]) -> Report {
    let is_rust = |file: &&TextFile| file.path.ends_with(".rs");
    let sources: Vec<Source> =
        files.iter().filter(is_rust).map(|file| Source::new(&file.path, &file.text)).collect();
    let mut report = Report::default();
    layering::check(&workspace.members, files, &mut report);
    tree::check(files, &mut report);
    safety::check(&sources, &mut report);
    for source in &sources {
        banned::check(source, &mut report);
        shape::check(source, &mut report);
    }
    report.violations.sort();
    report.violations.dedup();
    report
}

/// Every text file that is tracked or could be: not what git ignores, and not what is no text.
fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let paths = match listed_by_git(root) {
        Some(paths) => paths,
        None => {
            println!("tidy: no answer from git, so every file outside `target` and `.git` is checked");
            walked(root)?
        }
    };
    let mut files = Vec::new();
    for path in paths {
        match fs::read(root.join(&path)) {
            Ok(bytes) if bytes.contains(&0) => {}
            Ok(bytes) => {
                if let Ok(text) = String::from_utf8(bytes) {
                    files.push(TextFile { path, text });
                }
            }
            // Tracked but deleted, or a link to a folder.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {}
            Err(error) => return Err(format!("{path} could not be read: {error}")),
        }
    }
    Ok(files)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> =
        listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort_unstable();
    paths.dedup();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).map_err(|error| format!("{folder}: {error}"))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{folder}: {error}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(|error| format!("{folder}/{name}: {error}"))?;
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let is_skipped = name == "target" || name == ".git";
            if kind.is_dir() && !is_skipped {
                folders.push(path);
            } else if kind.is_file() {
                paths.push(path);
            }
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The rules that a snippet breaks, for the tests of the rules.
#[cfg(test)]
fn rules_broken(check: impl FnOnce(&mut Report)) -> Vec<(&'static str, usize)> {
    let mut report = Report::default();
    check(&mut report);
    report.violations.sort();
    report.violations.iter().map(|violation| (violation.rule, violation.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_come_out_sorted_and_once() {
        let workspace = Workspace { root: "root".into(), target: "target".into(), members: Vec::new() };
        let text = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [text("crates/b/src/b.rs", "fn b() {}\n"), text("crates/a/src/a.rs", "fn a() {}\n")];
        let report = check(&workspace, &files);
        let paths: Vec<&str> = report.violations.iter().map(|violation| violation.path.as_str()).collect();
        assert!(paths.is_sorted());
        assert!(report.violations.iter().any(|violation| violation.rule == "module-doc"));
    }

    #[test]
    fn a_tree_without_git_is_walked_without_its_build_folder() {
        let root = std::env::temp_dir().join(format!("hicache-xtask-walk-{}", std::process::id()));
        for folder in ["target", "crates/a"] {
            fs::create_dir_all(root.join(folder)).expect("a folder under the temporary one");
            fs::write(root.join(folder).join("x.rs"), "x").expect("a file in it");
        }
        let paths = walked(&root);
        fs::remove_dir_all(&root).expect("the folder is there");
        assert_eq!(paths, Ok(vec!["crates/a/x.rs".to_owned()]));
    }
}
