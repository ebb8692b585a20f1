//! `cargo xtask docs`: the documents that are made from what the built command says.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cargo::{cargo, succeed};
use crate::workspace::Workspace;

const PATH: &str = "docs/CONFIG.md";

/// What stands before the tables.
const HEAD: &str = include_str!("docs/config.md");

/// Writes the documents.
pub(crate) fn write(workspace: &Workspace) -> Result<(), String> {
    let text = config(workspace)?;
    let path = workspace.root.join(PATH);
    fs::write(&path, text).map_err(|error| format!("{} could not be written: {error}", path.display()))
}

/// Whether the documents are what the command says.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let wanted = config(workspace)?;
    match fs::read_to_string(workspace.root.join(PATH)) {
        Ok(held) if held == wanted => Ok(()),
        Ok(_) => Err(format!("{PATH} is not what the command says; run `cargo xtask docs` and commit it")),
        Err(error) => Err(format!("{PATH} could not be read: {error}; run `cargo xtask docs`")),
    }
}

fn config(workspace: &Workspace) -> Result<String, String> {
    succeed(cargo(&["build", "--locked", "-p", "hicache-cli", "--features", "full", "--bin", "hicache"]))?;
    let text = shown(&workspace.target.join("debug/hicache"))?;
    let document: Value =
        serde_json::from_str(&text).map_err(|error| format!("`config show` printed no JSON: {error}"))?;
    render(&document)
}

/// What the command says where nothing is set.
fn shown(command: &Path) -> Result<String, String> {
    let output = Command::new(command)
        .args(["config", "show", "--all", "--json"])
        .env_clear()
        .output()
        .map_err(|error| format!("{} did not start: {error}", command.display()))?;
    if !output.status.success() {
        return Err(format!("`config show` failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| "`config show` printed something that is not UTF-8".to_owned())
}

fn render(document: &Value) -> Result<String, String> {
    let options = document["options"].as_array().ok_or("`config show` has no options")?;
    let mut text = HEAD.to_owned();
    let mut store = "";
    for option in options {
        let field = |name: &str| {
            option[name].as_str().ok_or_else(|| format!("an option of `config show` has no {name}: {option}"))
        };
        if field("store")? != store {
            store = field("store")?;
            text.push_str(&format!("\n## Options of `{store}:`\n\n"));
            text.push_str("| option | type | default | what it does |\n| --- | --- | --- | --- |\n");
        }
        let aliases = option["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let also: String = aliases.map(|alias| format!(", `{alias}`")).collect();
        let secret = if option["secret"] == true { " (secret)" } else { "" };
        let (name, kind, default, about) =
            (field("name")?, field("type")?, field("default")?, field("about")?);
        text.push_str(&format!("| `{name}`{also}{secret} | {kind} | {default} | {about} |\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_store_has_a_table_and_each_option_a_row() {
        let option = |store: &str, name: &str| {
            json!({ "store": store, "name": name, "type": "bool", "default": "true", "about": "does",
                "aliases": ["other"], "secret": false, "value": "set here", "source": "flag" })
        };
        let document = json!({ "options": [option("file", "a"), option("file", "b"), option("s3", "a")] });
        let text = render(&document).expect("a document");
        assert_eq!(text.matches("## Options of").count(), 2);
        assert_eq!(text.matches("| `a`, `other` | bool | true | does |").count(), 2);
        assert!(!text.contains("set here"), "what is set on this machine is no documentation");
    }

    #[test]
    fn an_option_without_a_field_is_an_error_that_names_it() {
        let error = render(&json!({ "options": [{ "store": "file", "name": "a" }] })).expect_err("no type");
        assert!(error.contains("has no type"), "{error}");
        assert!(render(&json!({})).is_err());
    }
}
