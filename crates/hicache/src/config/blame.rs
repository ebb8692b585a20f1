//! Every error of a configuration file: each is told, what it is about left out, and the rest looked at again.

use crate::{ConfigFile, Error, Opener};

impl Opener {
    /// All that [`Opener::check_config`] would find, one after the other, in a file whose errors are mended; none where
    /// it is right. What may follow from an error that is told (the other half of a pair) is not told.
    pub fn config_errors(&self) -> Vec<Error> {
        let (mut rest, mut errors) = (self.clone(), Vec::new());
        while let Err(error) = rest.check_config() {
            let Some(config) = &mut rest.config else { break };
            let is_url = config.backend().is_some_and(|url| rest.registry.location(url).is_err());
            let left_out = config.leave_out(&error);
            if left_out || is_url || errors.is_empty() {
                errors.push(error);
            }
            if !left_out && config.backend.take().is_none() {
                break;
            }
        }
        errors
    }
}

impl ConfigFile {
    /// Leaves out what an error of its check names; whether it names anything.
    fn leave_out(&mut self, error: &Error) -> bool {
        if let Some(key) = error.fact("at") {
            let all = self.sections.len();
            self.sections.retain(|section| section.scheme.as_deref() != Some(key));
            return self.sections.len() < all;
        }
        let of_tier = error.fact("named_by").filter(|place| place.starts_with("file "));
        // Of two sources that differ, the last.
        let differ = error.fact("sources").and_then(|sources| sources.rsplit_once(" and "));
        let blamed = of_tier.or(error.fact("source")).or(differ.map(|(_, last)| last));
        let Some(blamed) = blamed else { return false };
        let mut left_out = false;
        for section in &mut self.sections {
            let path = &self.path;
            section.settings.retain(|setting| {
                let is_it = blamed == format!("file {path}: {}", setting.at);
                left_out |= is_it;
                !is_it
            });
        }
        left_out || blamed == "url" && self.backend.take().is_some()
    }
}
