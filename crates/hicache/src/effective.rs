//! One option of a store as it is in force.

use crate::{OptionSpec, Source, StoreOptions};

/// What is printed for a secret.
const SECRET: &str = "***";

/// What holds for one option of a store. A secret's value is not in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EffectiveOption {
    /// The scheme of the store.
    pub store: &'static str,
    /// What the store knows about it.
    pub spec: OptionSpec,
    /// Its values, several where it is repeated; none where nothing sets it, and the default holds.
    pub values: Vec<String>,
    /// Who says so.
    pub source: Source,
}

impl EffectiveOption {
    pub(crate) fn of(store: &'static str, spec: OptionSpec, options: &StoreOptions) -> Self {
        let held = options.strongest(&spec);
        let source = held.first().map_or(Source::Default, |(source, _)| (*source).clone());
        let text = |value: &str| if spec.secret { SECRET.to_owned() } else { value.to_owned() };
        let values = held.iter().map(|(_, value)| text(value)).collect();
        Self { store, spec, values, source }
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("HICACHE_{}_{}", self.store, self.spec.name).to_ascii_uppercase()
    }
}
