//! `hicache config`: what options there are, what they are set to, and whether a file is right.

use crate::args::{Config, ConfigShow};
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
use crate::session::{self, Absent};
use hicache::{ConfigFile, EffectiveOption, Error, Opener};
use serde_json::{Value, json};
use std::path::Path;

/// Whose options are shown where nothing names a store.
const DEFAULT_STORE: &str = "file:";

pub(crate) fn run(args: &Config, output: &mut Output) -> Result {
    match args {
        Config::Check { file } => check(file, output),
        Config::Show(args) => show(args, output),
    }
}

fn check(file: &Path, output: &mut Output) -> Result {
    let opener = Opener { config: Some(ConfigFile::read(file)?), ..Opener::default() };
    let mut errors = opener.config_errors();
    if let Some(last) = errors.pop() {
        return refused(errors, last, output);
    }
    tell_passed_over(&opener, output);
    // A plugin whose bucket a variable is to say names none.
    let backend = opener.url().ok().flatten().map(|url| opener.registry.redact(&url));
    if output.is_json() {
        output.document(&json!({ "file": file.display().to_string(), "ok": true, "backend": backend }))?;
    } else {
        let named = backend.map_or("it names no store".to_owned(), |url| format!("it names {url}"));
        output.line(format_args!("{}: ok; {named}", file.display()))?;
    }
    Ok(Ending::Done)
}

/// Tells all but the last, which whoever gets it tells.
fn refused(errors: Vec<Error>, last: Error, output: &mut Output) -> Result {
    let (errors, last): (Vec<_>, _) = (errors.into_iter().map(Failure::from).collect(), Failure::from(last));
    errors.iter().for_each(Failure::tell);
    if output.is_json() {
        let all: Vec<Value> = errors.iter().chain([&last]).map(Failure::document).collect();
        output.document(&json!({ "error": all[0], "errors": all }))?;
        output.finish()?;
    }
    Err(last)
}

fn show(args: &ConfigShow, output: &mut Output) -> Result {
    let (opener, url) = session::named(&args.place, Absent::Refuse)?;
    let url = match url {
        Some(url) => url,
        None => opener.url()?.unwrap_or_else(|| DEFAULT_STORE.to_owned()),
    };
    let mut options = opener.effective(&url)?;
    tell_passed_over(&opener, output);
    if args.all {
        options.retain(|option| option.tier.is_none());
        let (named, _) = opener.registry.factory(&url)?;
        for factory in opener.registry.factories().filter(|factory| factory.scheme != named.scheme) {
            options.extend(opener.effective(&format!("{}:", factory.scheme))?);
        }
        options.sort_by_key(|option| option.store);
    }
    if output.is_json() {
        let options: Vec<Value> = options.iter().map(|option| document(option, args.all)).collect();
        output.document(&json!({ "options": options }))?;
        return Ok(Ending::Done);
    }
    let width = options.iter().map(|option| option.name().len()).max().unwrap_or(0);
    for option in &options {
        let (name, source) = (option.name(), &option.source);
        let value = option.values.join(", ");
        let value = if option.values.is_empty() { option.spec.default } else { &value };
        if !args.all {
            output.line(format_args!("{name:<width$}  {value}  ({source})"))?;
            continue;
        }
        let EffectiveOption { store, spec, .. } = option;
        output.line(format_args!("{store:<6} {name:<width$}  {value}  ({source})"))?;
        output.line(format_args!("       {:<width$}  {}; {}", "", spec.about, spec.kind))?;
    }
    Ok(Ending::Done)
}

/// What is set and no store of this build reads.
fn tell_passed_over(opener: &Opener, output: &Output) {
    for (place, fix) in opener.passed_over().iter().filter(|_| !output.is_quiet()) {
        output::note(format_args!("note: {place} is passed over: {fix}"));
    }
}

/// One option as JSON. A repeated option that is set to several values is a list.
fn document(option: &EffectiveOption, all: bool) -> Value {
    let spec = &option.spec;
    let value = match option.values.as_slice() {
        [] => json!(spec.default),
        [value] => json!(value),
        values => json!(values),
    };
    let mut document = json!({ "name": option.name(), "value": value, "source": option.source.to_string() });
    if all {
        document["store"] = json!(option.store);
        document["type"] = json!(spec.kind);
        document["default"] = json!(spec.default);
        document["about"] = json!(spec.about);
        document["aliases"] = json!(spec.aliases);
        document["variable"] = json!(option.variable());
        document["secret"] = json!(spec.secret);
    }
    document
}
