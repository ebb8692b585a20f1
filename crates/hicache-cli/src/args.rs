//! Flags and arguments: the names that scripts rely on.

mod bench;

pub(crate) use bench::{Bench, BenchAlloc, BenchFile, BenchKeys, Cache, Memory};
#[cfg(feature = "obj")]
pub(crate) use bench::{BenchObj, Switch};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use hicache::{Namespace, PageKey, PageLayout, PageOrder, parse_path, parse_size};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 the operation failed, or replay had errors; 2 bad usage or \
    configuration; 3 data found wrong; 129, 130, 143 stopped by SIGHUP, SIGINT (Ctrl-C), SIGTERM: 128 and the \
    signal.\nWith --json the help and the version are JSON too.\nSizes are bytes: 4096, 64KiB, 1MiB, 2GB.";

/// The storage tier under the KV cache of LLM inference engines
#[derive(Debug, Parser)]
#[command(name = "hicache", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    /// Print exactly one JSON document on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show no progress and no notes
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log more to standard error (twice, thrice: more still); RUST_LOG is obeyed too, for events of hicache
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The whole thing at work, with nothing to set up
    ///
    /// Builds a host pool and replays a built-in multi-turn workload through a file store: stores, reopens the store
    /// half way, loads back and compares every page. Without --backend in a fresh temporary store, which is removed.
    Demo(Demo),
    /// Replay a request trace: load the longest stored prefix of each request, store the rest
    ///
    /// The trace is JSON lines {"timestamp": ms, "hash_ids": [block ids]}, as Mooncake publishes them; other fields are
    /// passed over. A request's ids are those of its blocks of tokens, in order, whole numbers: an id stands for a
    /// block with all blocks before it, so requests that begin alike begin with the same ids. Each block is a page.
    ///
    /// Without --backend or --config in a fresh temporary store, which is removed. Read time is the time spent waiting
    /// for pages; write time is that from a request's first batch to its last outcome; load latencies are the time that
    /// one request waited for its pages.
    Replay(Replay),
    /// Measure one part
    #[command(subcommand)]
    Bench(Bench),
    /// Store the contents of a file as one page
    ///
    /// A key stands for its contents: where a page is there under it, nothing is written and the answer is "present",
    /// also when the file has other bytes.
    Put(Put),
    /// Fetch one page into a file, which appears whole or not at all
    ///
    /// A page that is not there, fails its check, or carries no check, is none: the message says which, and the exit
    /// code is 1.
    Get(Get),
    /// Ask which pages are there
    ///
    /// The exit code is 0 whatever is there: the lines, or the JSON, say what.
    Exists(Keys),
    /// Remove pages
    ///
    /// The exit code is 0 also for pages that were not there; the lines, or the JSON, say which were.
    Remove(Keys),
    /// List the pages of a store
    ///
    /// A heading says which store and what stands in a line; with --quiet there is none.
    List(Inspect),
    /// Count the pages of a store, and its room
    ///
    /// Room is the bytes of the pages and the free space of the medium; nothing limits a store of files to less.
    Stat(Inspect),
    /// Read every page and check it
    ///
    /// Each page that is wrong, torn or unreadable is told on standard error. The exit code is 3 when one is wrong or
    /// torn, also when --repair has removed it, else 1 when something cannot be read. What has lost its namespace's
    /// record is an orphan; drop with the digest removes it.
    Verify(Verify),
    /// List the namespaces of a store
    Namespaces(Place),
    /// Remove a namespace with all its pages
    Drop(Drop),
    /// Make page keys of the token ids on standard input, one key a line
    ///
    /// Token ids are whole numbers from 0 to 2^63 - 1, between white space or commas, also in the brackets of one JSON
    /// list: 1 2 3, or 1,2,3, or [1, 2, 3], or one a line. A trailing partial page has no key, which a note says.
    PageKeys(PageKeys),
    /// What this machine, directory and bucket allow, and what fixes what they do not
    ///
    /// Looks at the store that --backend or --config names, else at the user's own; makes none. In a bucket one small
    /// object is written, read and removed. A row says MISS where something is not as wanted, with its fix; the exit
    /// code is 0 all the same. Of further directories (dir) rows are called as dir1.writable; of a tier: store each of
    /// the two is looked at, in rows as first.writable. A row that says info is of what nobody asked for.
    Doctor(Place),
    /// What options a store has and what they are set to
    #[command(subcommand)]
    Config(Config),
    /// Write shell completions to standard output
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Which store.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The store's URL: file:/path, s3://bucket/prefix, tier:?first=URL&second=URL or memory:, with ?option=value&...
    #[arg(long, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// A configuration file (.toml, .json, .yaml) with backend = "URL" and a section for each kind of store
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) config: Option<PathBuf>,
}

/// `demo`.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `replay`.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The trace; - for standard input
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) page: PageShape,
    /// Slots of the host pool; where not given 256, or as many as fit 2 GiB and a quarter of the memory available
    #[arg(long, value_name = "N")]
    pub(crate) pool_pages: Option<NonZeroU32>,
    /// Requests to replay; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) requests: u64,
    /// Requests of the trace to leave out first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) skip: u64,
    /// How many times faster than recorded; max waits for nothing
    #[arg(long, value_name = "X|max", default_value = "max", value_parser = parse_speed)]
    pub(crate) speed: Speed,
    /// Compare every page loaded with what was stored
    #[arg(long)]
    pub(crate) verify: bool,
    /// Close and reopen the store after every N requests (memory: then forgets all)
    #[arg(long, value_name = "N")]
    pub(crate) restart_every: Option<NonZeroU64>,
}

/// What a page of the replay is.
#[derive(Args, Debug)]
pub(crate) struct PageShape {
    /// Bytes of a page, in one piece
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_page_len)]
    page_bytes: usize,
    /// Instead: a page holds one block's tokens of this model
    #[arg(long, conflicts_with = "page_bytes")]
    model: Option<Model>,
    /// How a model's page is ordered: page_first, page_first_direct, page_head, layer_first; other pages are one piece
    #[arg(long, default_value = "page_first", value_parser = parse_order)]
    order: PageOrder,
    /// Tokens in a block of the trace, as a model's page holds them
    #[arg(long, value_name = "N", default_value = "512")]
    block_tokens: NonZeroU32,
}

/// Models whose page shapes are known here.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Model {
    /// 32 layers, 8 KV heads of 128, bf16
    #[value(name = "llama3-8b")]
    Llama3,
    /// 64 layers, 8 KV heads of 128, bf16
    #[value(name = "qwen3-32b")]
    Qwen3,
    /// 61 layers, a latent vector of 576, bf16
    #[value(name = "deepseek-v3")]
    DeepSeekV3,
}

/// How fast a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// Its timestamps, this many times faster.
    Times(f64),
    /// Without waiting.
    Max,
}

/// `put`.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The page's key, 64 hexadecimal digits
    #[arg(value_parser = parse_key)]
    pub(crate) key: PageKey,
    /// The file; - for standard input
    pub(crate) file: PathBuf,
    /// Which namespace; the first page put into it sets the size of all
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
    /// The key of the page before it
    #[arg(long, value_name = "HEX", value_parser = parse_key)]
    pub(crate) parent: Option<PageKey>,
}

/// `get`.
#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The page's key, 64 hexadecimal digits
    #[arg(value_parser = parse_key)]
    pub(crate) key: PageKey,
    /// The file; - for standard output
    pub(crate) file: PathBuf,
    /// Which namespace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
}

/// `exists`, `remove`.
#[derive(Args, Debug)]
pub(crate) struct Keys {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Page keys, 64 hexadecimal digits each
    #[arg(required = true, value_parser = parse_key)]
    pub(crate) keys: Vec<PageKey>,
    /// Which namespace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
}

/// `list`, `stat`.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only this namespace, by its name or digest
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// `verify`.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) inspect: Inspect,
    /// Remove what is wrong or torn, so that it is a miss and the next set writes it anew
    #[arg(long)]
    pub(crate) repair: bool,
}

/// `drop`.
#[derive(Args, Debug)]
pub(crate) struct Drop {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The namespace's name, or its digest where several have that name or its record is lost
    pub(crate) namespace: String,
}

/// `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Check a configuration file: its syntax, its keys and every value in it
    ///
    /// Nothing is opened. Reads TOML, JSON and YAML, and both shapes of SGLang's extra configuration.
    Check {
        /// The file (.toml, .json, .yaml)
        file: PathBuf,
    },
    /// Show each option of the store as it is in force, and which source says so
    ///
    /// The store is the one that --backend or the configuration names, else a file store. Nothing is opened. Secrets
    /// are not shown.
    Show(ConfigShow),
}

/// `config show`.
#[derive(Args, Debug)]
pub(crate) struct ConfigShow {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Every option of every kind of store, with its type, its default and what it does
    #[arg(long)]
    pub(crate) all: bool,
}

/// `page-keys`.
#[derive(Args, Debug)]
pub(crate) struct PageKeys {
    /// Units (tokens; pairs of tokens with --bigram) in a page
    #[arg(long, value_name = "N")]
    pub(crate) page_size: NonZeroUsize,
    /// The key of the page before the first; an empty text is none, and then nothing seeds the chain
    #[arg(long, value_name = "HEX", value_parser = parse_prior)]
    pub(crate) prior: Option<Prior>,
    /// What separates tenants, a LoRA adapter say: seeds the chain when there is no prior key
    #[arg(long, value_name = "S")]
    pub(crate) extra_key: Option<String>,
    /// What separates tenants too
    #[arg(long, value_name = "S")]
    pub(crate) cache_salt: Option<String>,
    /// Units are a token and the one after it, as EAGLE keys its pages
    #[arg(long)]
    pub(crate) bigram: bool,
}

/// `--prior`; empty text is no key, and no seed either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prior(pub(crate) Option<PageKey>);

impl PageShape {
    /// The layout of a page.
    pub(crate) fn layout(&self) -> hicache::Result<PageLayout> {
        use hicache::{DType, Geometry};
        let (tokens, dtype) = (self.block_tokens.get(), DType::Bf16);
        let mha = |layers| Geometry::Mha { layers, tokens, heads: 8, head_dim: 128, dtype };
        let geometry = match self.model {
            None => Geometry::Opaque { len: self.page_bytes },
            Some(Model::Llama3) => mha(32),
            Some(Model::Qwen3) => mha(64),
            Some(Model::DeepSeekV3) => Geometry::Mla { layers: 61, tokens, latent_dim: 576, dtype },
        };
        PageLayout::new(geometry, self.order)
    }
}

/// The namespace of replayed pages.
pub(crate) fn replay_namespace(layout: PageLayout) -> hicache::Result<Namespace> {
    Namespace::named("replay", layout)
}

/// A path in a flag, which a shell does not expand either where it follows an equals sign.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some(text) => parse_path(text),
        None => Ok(path),
    })
}

fn parse_key(text: &str) -> Result<PageKey, String> {
    text.parse().map_err(|_| format!("a key is 64 hexadecimal digits, this has {} characters", text.len()))
}

fn parse_prior(text: &str) -> Result<Prior, String> {
    if text.is_empty() { Ok(Prior(None)) } else { parse_key(text).map(|key| Prior(Some(key))) }
}

fn parse_page_len(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(0) => Err("a page has at least 1 byte".to_owned()),
        len => len.map_err(|error| error.to_string()),
    }
}

fn parse_order(text: &str) -> Result<PageOrder, String> {
    text.parse().map_err(|error: hicache::Error| error.to_string())
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    match text.parse::<f64>() {
        _ if text == "max" => Ok(Speed::Max),
        Ok(times) if times.is_finite() && times > 0.0 => Ok(Speed::Times(times)),
        _ => Err("want a number above 0, or max".to_owned()),
    }
}
