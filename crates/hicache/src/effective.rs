//! One option of a store as it is in force.

use crate::{OptionSpec, Source, StoreFactory, StoreOptions, StoreRegistry};

/// What is printed for a secret.
const SECRET: &str = "***";

/// What holds for one option of a store. A secret's value is not in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EffectiveOption {
    /// The scheme of the store.
    pub store: &'static str,
    /// Of a store that another is made of, the other's option that names it.
    pub tier: Option<&'static str>,
    /// What the store knows about it.
    pub spec: OptionSpec,
    /// Its values, several where it is repeated; none where nothing sets it, and the default holds.
    pub values: Vec<String>,
    /// Who says so.
    pub source: Source,
}

impl EffectiveOption {
    pub(crate) fn of(
        registry: &StoreRegistry,
        factory: &StoreFactory,
        tier: Option<&'static str>,
        spec: OptionSpec,
        options: &StoreOptions,
    ) -> Self {
        let held = options.strongest(&spec);
        let source = held.first().map_or(Source::Default, |(source, _)| (*source).clone());
        let is_url = factory.stores.iter().any(|store| store.name == spec.name);
        let text = |value: &str| match (spec.secret, is_url) {
            (true, _) => SECRET.to_owned(),
            (false, true) => registry.redact(value),
            (false, false) => value.to_owned(),
        };
        let values = held.iter().map(|(_, value)| text(value)).collect();
        Self { store: factory.scheme, tier, spec, values, source }
    }

    /// Its name, and before it that of the tier, if it is of one: `first.direct`.
    pub fn name(&self) -> String {
        self.tier.map_or(String::new(), |tier| format!("{tier}.")) + self.spec.name
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("HICACHE_{}_{}", self.store, self.spec.name).to_ascii_uppercase()
    }
}
