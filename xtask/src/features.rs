//! Every crate with no feature, each alone, the defaults and all: each set must build without warnings.

use crate::cargo::{cargo, succeed};
use crate::workspace::{Member, Workspace};

/// Lints each crate of `crates/` under each set of its features, one at a time so that no feature leaks in.
///
/// Clippy rather than `cargo check`: the same work, shared with the lint step, and a warning fails.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut failed = Vec::new();
    for member in workspace.members.iter().filter(|member| member.folder.starts_with("crates/")) {
        for set in sets(member) {
            let mut command = cargo(&["clippy", "--quiet", "--locked", "-p", &member.name]);
            command.args(&set).args(["--", "-D", "warnings"]);
            if succeed(command).is_err() {
                failed.push(format!("{} {}", member.name, set.join(" ")).trim_end().to_owned());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("these do not build alone: {}", failed.join("; "))) }
}

/// The feature sets of a crate as cargo arguments, none of them twice.
fn sets(member: &Member) -> Vec<Vec<String>> {
    let mut named: Vec<&str> = member.features.iter().map(String::as_str).collect();
    named.retain(|feature| *feature != "default");
    if member.features.is_empty() {
        return vec![Vec::new()];
    }
    let mut sets = vec![vec!["--no-default-features".to_owned()], Vec::new()];
    for feature in &named {
        let alone = ["--no-default-features", "--features", feature];
        sets.push(alone.map(str::to_owned).to_vec());
    }
    if named.len() > 1 {
        sets.push(vec!["--all-features".to_owned()]);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(features: &[&str]) -> Member {
        Member {
            name: "hicache".to_owned(),
            folder: "crates/hicache".to_owned(),
            dependencies: Vec::new(),
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        }
    }

    fn lines(features: &[&str]) -> Vec<String> {
        sets(&member(features)).iter().map(|set| set.join(" ")).collect()
    }

    #[test]
    fn a_crate_without_features_is_checked_once() {
        assert_eq!(lines(&[]), [""]);
    }

    #[test]
    fn one_feature_alone_is_not_checked_again_as_all() {
        assert_eq!(
            lines(&["default", "file"]),
            ["--no-default-features", "", "--no-default-features --features file"]
        );
    }

    #[test]
    fn several_features_are_checked_alone_and_together() {
        assert_eq!(
            lines(&["default", "file", "obj"]),
            [
                "--no-default-features",
                "",
                "--no-default-features --features file",
                "--no-default-features --features obj",
                "--all-features"
            ]
        );
    }
}
