//! The workspace as cargo describes it: members, their dependencies and features, and where things lie.

use std::path::PathBuf;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// What the commands need to know about the workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) members: Vec<Member>,
}

/// One package of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Folder of the package, relative to the root, with `/` between its parts.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Internal>,
    pub(crate) features: Vec<String>,
}

/// A dependency of one member on another.
#[derive(Debug)]
pub(crate) struct Internal {
    pub(crate) name: String,
    pub(crate) only_for_tests: bool,
}

impl Workspace {
    /// Asks cargo, without resolving or fetching any dependency.
    pub(crate) fn load() -> Result<Self, String> {
        let metadata = MetadataCommand::new()
            .no_deps()
            .exec()
            .map_err(|error| format!("cargo metadata could not read the workspace: {error}"))?;
        Ok(Self {
            root: metadata.workspace_root.clone().into(),
            target: metadata.target_directory.clone().into(),
            members: metadata.workspace_packages().iter().map(|package| member(&metadata, package)).collect(),
        })
    }
}

fn member(metadata: &Metadata, package: &Package) -> Member {
    let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
    let folder = folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder);
    let members = metadata.workspace_packages();
    let is_member = |name: &str| members.iter().any(|member| member.name.as_ref() == name);
    Member {
        name: package.name.to_string(),
        folder: folder.to_string(),
        dependencies: package
            .dependencies
            .iter()
            .filter(|dependency| is_member(&dependency.name))
            .map(|dependency| Internal {
                name: dependency.name.clone(),
                only_for_tests: dependency.kind == DependencyKind::Development,
            })
            .collect(),
        features: package.features.keys().cloned().collect(),
    }
}
