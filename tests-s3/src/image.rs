//! Images of S3 servers, and how each kind of them is started.

use crate::choice::Absent;
use std::env;

/// Names another image than ours, with its tag; of a kind that has a recipe.
const IMAGE: &str = "HICACHE_TEST_S3_IMAGE";
const DEFAULT: &str = "minio/minio:RELEASE.2025-02-28T09-55-16Z";

/// An image and its recipe.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) recipe: &'static Recipe,
}

/// What is to be known of a kind of server.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Images of it have this in their names.
    in_name: &'static str,
    /// Inside the container.
    pub(crate) port: u16,
    /// Answers 200 when the server is up.
    pub(crate) health: &'static str,
    /// For the image's entry point.
    pub(crate) command: &'static [&'static str],
    /// The variables that take the access key and the secret key.
    pub(crate) credentials: [&'static str; 2],
}

const RECIPES: [Recipe; 2] = [
    Recipe {
        in_name: "minio",
        port: 9000,
        health: "/minio/health/ready",
        command: &["server", "/data"],
        credentials: ["MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"],
    },
    Recipe {
        in_name: "seaweedfs",
        port: 8333,
        health: "/healthz",
        command: &[
            "-logtostderr=true",
            "mini",
            "-dir=/data",
            "-ip=127.0.0.1",
            "-ip.bind=0.0.0.0",
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
        ],
        credentials: ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
    },
];

impl Image {
    /// The one that the environment names, or ours.
    pub(crate) fn wanted() -> Result<Self, Absent> {
        let named = env::var(IMAGE).ok().filter(|image| !image.is_empty());
        Self::of(named.as_deref().unwrap_or(DEFAULT))
    }

    fn of(image: &str) -> Result<Self, Absent> {
        // A colon before a slash is that of a registry's port.
        let (name, tag) = image
            .rsplit_once(':')
            .filter(|(name, tag)| !tag.contains('/') && !name.contains('@'))
            .ok_or_else(|| Absent(format!("the image `{image}` is not named with its tag")))?;
        let recipe = RECIPES.iter().find(|recipe| name.contains(recipe.in_name)).ok_or_else(|| {
            let known = RECIPES.map(|recipe| recipe.in_name).join(" or ");
            Absent(format!("there is no recipe for the image `{image}`; its name holds neither {known}"))
        })?;
        Ok(Self { name: name.to_owned(), tag: tag.to_owned(), recipe })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_image_is_known_by_its_name_wherever_it_comes_from() {
        for (image, name, tag, port) in [
            (DEFAULT, "minio/minio", "RELEASE.2025-02-28T09-55-16Z", 9000),
            ("hicache/seaweedfs:4.48", "hicache/seaweedfs", "4.48", 8333),
            ("registry.example:5000/x/seaweedfs:1", "registry.example:5000/x/seaweedfs", "1", 8333),
        ] {
            let found = Image::of(image).unwrap();
            assert_eq!((found.name.as_str(), found.tag.as_str(), found.recipe.port), (name, tag, port));
        }
    }

    #[test]
    fn an_image_without_tag_or_recipe_is_told() {
        for image in ["minio/minio", "registry.example:5000/minio", "minio/minio@sha256:00"] {
            assert!(Image::of(image).unwrap_err().to_string().contains("tag"), "{image}");
        }
        assert!(Image::of("ceph/ceph:1").unwrap_err().to_string().contains("no recipe"));
    }
}
