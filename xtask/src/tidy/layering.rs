//! Which crate may depend on which, and what every manifest takes from the workspace.

use super::{Report, TextFile};
use crate::workspace::Member;

/// Members that a member may depend on. A member that is not here is a violation: decide its place first.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("hicache-alloc", &[]),
    ("hicache-core", &["hicache-alloc"]),
    ("hicache-file", CORE),
    ("hicache-obj", CORE),
    ("hicache-shm", CORE),
    ("hicache-tier", CORE),
    ("hicache-cuda", CORE),
    ("hicache-testkit", CORE),
    (
        "hicache",
        &["hicache-core", "hicache-file", "hicache-obj", "hicache-shm", "hicache-tier", "hicache-cuda"],
    ),
    ("hicache-cli", FACADE),
    ("hicache-python", FACADE),
    ("hicache-tests", ANYTHING),
    ("hicache-s3-tests", ANYTHING),
    ("hicache-benches", ANYTHING),
    ("xtask", &[]),
];
const CORE: &[&str] = &["hicache-core"];
const FACADE: &[&str] = &["hicache"];
const ANYTHING: &[&str] = &["*"];
/// The one crate that any member's tests may use.
const FOR_TESTS: &str = "hicache-testkit";

/// Keys that every `[package]` takes from the workspace.
const SHARED_KEYS: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Checks dependencies and manifest of every member.
pub(super) fn check(members: &[Member], files: &[TextFile], report: &mut Report) {
    for member in members {
        let path = format!("{}/Cargo.toml", member.folder);
        let manifest = files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
        check_dependencies(member, &path, manifest, report);
        check_manifest(&path, manifest, report);
    }
}

fn check_dependencies(member: &Member, path: &str, manifest: &str, report: &mut Report) {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
        let advice =
            format!("`{}` has no place in the layers; add it to tidy's table `ALLOWED`", member.name);
        return report.add(path, 1, "layering", advice);
    };
    for dependency in &member.dependencies {
        let name = dependency.name.as_str();
        let is_test_help = dependency.only_for_tests && name == FOR_TESTS && member.name != "xtask";
        if allowed.contains(&"*") || allowed.contains(&name) || is_test_help {
            continue;
        }
        let line =
            manifest.lines().position(|line| names_dependency(line, name)).map_or(1, |index| index + 1);
        let may = if allowed.is_empty() { "no member".to_owned() } else { allowed.join(", ") };
        let advice = format!("`{}` must not depend on `{name}`; it may on {may}", member.name);
        report.add(path, line, "layering", advice);
    }
}

fn names_dependency(line: &str, name: &str) -> bool {
    let line =
        line.trim_start().trim_start_matches("[dependencies.").trim_start_matches("[dev-dependencies.");
    line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['.', '=', ']']))
}

fn check_manifest(path: &str, manifest: &str, report: &mut Report) {
    for key in SHARED_KEYS {
        if !takes_from_workspace(manifest, "package", key) {
            report.add(path, 1, "manifest", format!("write `{key}.workspace = true` under `[package]`"));
        }
    }
    if !entries(manifest, "lints").any(|(key, value)| key == "workspace" && value == "true") {
        report.add(path, 1, "manifest", "write `[lints]` and under it `workspace = true`");
    }
}

fn takes_from_workspace(manifest: &str, section: &str, wanted: &str) -> bool {
    entries(manifest, section).any(|(key, value)| match key.strip_prefix(wanted) {
        Some(".workspace") => value == "true",
        Some("") => value.replace(' ', "") == "{workspace=true}",
        _ => false,
    })
}

/// `key = value` lines of one section, without comments at their ends.
fn entries<'a>(manifest: &'a str, section: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let header = format!("[{section}]");
    let mut inside = false;
    manifest.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with('[') {
            inside = line == header;
            return None;
        }
        let (key, value) = line.split_once('=')?;
        let value = value.split('#').next().unwrap_or_default();
        inside.then(|| (key.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules_broken;
    use crate::workspace::Internal;

    fn layering(name: &str, dependencies: &[(&str, bool)]) -> Vec<(&'static str, usize)> {
        let dependency =
            |&(name, only_for_tests): &(&str, bool)| Internal { name: name.to_owned(), only_for_tests };
        let member = Member {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            dependencies: dependencies.iter().map(dependency).collect(),
            features: Vec::new(),
        };
        let manifest = "[dependencies]\nhicache-file.workspace = true\nhicache-obj = { workspace = true }\n";
        rules_broken(|report| check_dependencies(&member, "Cargo.toml", manifest, report))
    }

    #[test]
    fn a_store_that_knows_another_store_is_caught() {
        assert_eq!(
            layering("hicache-file", &[("hicache-core", false), ("hicache-obj", false)]),
            [("layering", 3)]
        );
        assert_eq!(layering("hicache-core", &[("hicache-file", false)]), [("layering", 2)]);
        assert_eq!(layering("hicache-alloc", &[("hicache-core", false)]), [("layering", 1)]);
        assert_eq!(layering("xtask", &[("hicache-testkit", true)]), [("layering", 1)]);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert_eq!(layering("hicache-file", &[("hicache-testkit", true)]), []);
        assert_eq!(layering("hicache-file", &[("hicache-testkit", false)]), [("layering", 1)]);
    }

    #[test]
    fn the_layers_as_drawn_pass() {
        assert_eq!(layering("hicache", &[("hicache-core", false), ("hicache-file", false)]), []);
        assert_eq!(layering("hicache-cli", &[("hicache", false)]), []);
        assert_eq!(layering("hicache-tests", &[("hicache-cli", true), ("hicache-alloc", false)]), []);
    }

    #[test]
    fn a_member_without_a_place_is_caught() {
        assert_eq!(layering("hicache-new", &[]), [("layering", 1)]);
    }

    #[test]
    fn a_manifest_with_a_version_of_its_own_is_caught() {
        let shared = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
            rust-version = { workspace = true } # as all\n\
            license.workspace = true\npublish.workspace = true\n";
        let whole = format!("{shared}[lints]\nworkspace = true\n");
        let broken =
            |manifest: &str| rules_broken(|report| check_manifest("Cargo.toml", manifest, report)).len();
        assert_eq!(broken(&whole), 0);
        assert_eq!(
            broken(&whole.replace("version.workspace = true\nedition", "version = \"1.0.0\"\nedition")),
            1
        );
        assert_eq!(broken(shared), 1);
        assert_eq!(broken(&format!("{shared}[dependencies]\nworkspace = true\n")), 1);
    }
}
