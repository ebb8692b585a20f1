//! A server in a container that testcontainers starts.

use crate::choice::Absent;
use crate::guard::Guard;
use crate::image::Image;
use crate::ports::Ports;
use crate::server::Access;
use std::error::Error;
use std::time::Duration;
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::SyncRunner;
use testcontainers::{GenericImage, ImageExt};

/// From the image at hand to a running container; its server may need longer.
const STARTUP: Duration = Duration::from_secs(60);

/// Removed on drop, and when this process is killed (by the engine's command, if that is there).
#[derive(Debug)]
pub(crate) struct Container {
    image: Image,
    access: Access,
    _guard: Guard,
    running: testcontainers::Container<GenericImage>,
    _ports: Ports,
}

impl Container {
    pub(crate) fn start() -> Result<Self, Absent> {
        let image = Image::wanted()?;
        let absent = |why: &dyn Error| Absent(format!("no container: {}", chain(why)));
        // One of our choice: the engine would choose another one at a restart.
        let ports = Ports::take(1).map_err(|error| absent(&error))?;
        let access = Access::own(ports.first);
        let [access_key, secret_key] = image.recipe.credentials;
        let running = GenericImage::new(&image.name, &image.tag)
            .with_mapped_port(ports.first, image.recipe.port.tcp())
            .with_cmd(image.recipe.command.iter().copied())
            .with_env_var(access_key, &access.access_key)
            .with_env_var(secret_key, &access.secret_key)
            .with_startup_timeout(STARTUP)
            .start()
            .map_err(|error| absent(&error))?;
        let guard = Guard::set("docker rm -f -v \"$1\"", [running.id()]).map_err(|error| absent(&error))?;
        Ok(Self { image, access, _guard: guard, running, _ports: ports })
    }

    pub(crate) fn image(&self) -> String {
        format!("{}:{}", self.image.name, self.image.tag)
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn health_path(&self) -> &'static str {
        self.image.recipe.health
    }

    pub(crate) fn kill(&self) {
        self.running.stop_with_timeout(Some(0)).expect("the engine stops the container");
    }

    // Both are async in name only: they block on the runtime that all containers share.
    pub(crate) fn pause(&self) {
        pollster::block_on(self.running.pause()).expect("the engine pauses the container");
    }

    pub(crate) fn resume(&self) {
        pollster::block_on(self.running.unpause()).expect("the engine resumes the container");
    }

    pub(crate) fn restart(&self) {
        self.running.start().expect("the engine starts the container again");
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
