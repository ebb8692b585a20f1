//! Names of options that no store has, and the ones that were meant.

use crate::{COMMON_OPTIONS, OptionSpec, Result, Source, StoreFactory, StoreOptions};

/// How alike two names are, from 0 to 1, that one can be meant with the other.
const LIKENESS_MIN: f64 = 0.75;

/// Refuses a name that is an option of none of the stores, as opening one of them would.
///
/// # Errors
///
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) with the source, and the name that is nearest.
pub(crate) fn check(factories: &[&StoreFactory], source: Source, name: &str) -> Result<()> {
    if factories
        .iter()
        .flat_map(|factory| options(factory))
        .any(|spec| spec.name == name || spec.aliases.contains(&name))
    {
        return Ok(());
    }
    let mut unknown = StoreOptions::default();
    unknown.set(source, name, "");
    unknown.finish(&factories.iter().map(|factory| factory.options).collect::<Vec<_>>())
}

/// All options of the store.
pub(crate) fn options(factory: &StoreFactory) -> impl Iterator<Item = &'static OptionSpec> {
    factory.options.iter().chain(COMMON_OPTIONS)
}

/// What mends that a kind of store is left out.
pub(crate) fn in_builds_with(scheme: &str, feature: &str) -> String {
    format!("{scheme}: is in builds with the feature {feature}")
}

/// The first of the most alike, if one is alike at all.
pub(crate) fn nearest<T>(all: impl IntoIterator<Item = (f64, T)>) -> Option<T> {
    let alike = all.into_iter().filter(|(likeness, _)| *likeness > LIKENESS_MIN);
    let best = alike.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name)| name)
}
