//! What a script can do to a request.

use super::wire::{Close, Delivery, Reply, Request};
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

type Edit = Box<dyn FnOnce(&mut Reply) + Send>;

/// What becomes of one request.
pub(crate) struct Action {
    pub(super) expect: Expect,
    pub(super) reads_body: bool,
    pub(super) read_pace: Option<(usize, Duration)>,
    pub(super) wait: Duration,
    pub(super) answer: Answer,
    pub(super) edits: Vec<Edit>,
    pub(super) delivery: Delivery,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Action").field("answer", &self.answer).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) enum Answer {
    /// What an S3 server would say.
    Normal,
    /// This instead; the buckets see nothing of the request.
    Fixed(Reply),
    /// Nothing.
    HangUp(Close),
}

/// What precedes the body of a request that asks `Expect: 100-continue`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expect {
    /// `100 Continue`, as it should be; nothing where nobody asks.
    #[default]
    Continue,
    /// Nothing: the client has to go ahead by itself.
    Never,
    /// These replies before the reply, whether asked for or not.
    Interim(Vec<u16>),
}

impl Action {
    fn of(answer: Answer) -> Self {
        Self {
            expect: Expect::default(),
            reads_body: true,
            read_pace: None,
            wait: Duration::ZERO,
            answer,
            edits: Vec::new(),
            delivery: Delivery::default(),
        }
    }

    /// As an S3 server does.
    pub(crate) fn normal() -> Self {
        Self::of(Answer::Normal)
    }

    /// `reply`, whatever was asked.
    pub(crate) fn reply(reply: Reply) -> Self {
        Self::of(Answer::Fixed(reply))
    }

    /// An error document of S3.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        Self::reply(Reply::error(status, code))
    }

    /// A bare status.
    pub(crate) fn status(status: u16) -> Self {
        Self::reply(Reply::new(status))
    }

    /// Reads the request and ends the connection without a word.
    pub(crate) fn hang_up(close: Close) -> Self {
        Self::of(Answer::HangUp(close))
    }

    /// Changes the reply before it goes out.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Reply) + Send + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Sets a header of the reply.
    pub(crate) fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        self.edit(move |reply| reply.set(name, value))
    }

    /// Lets this long pass before the reply.
    pub(crate) fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sends `len` bytes of the body, then ends the connection.
    pub(crate) fn cut(mut self, len: usize, close: Close) -> Self {
        self.delivery.cut = Some(len);
        self.delivery.close = Some(close);
        self
    }

    /// Sends `len` bytes of the body and no more, without an end where a length was announced.
    pub(crate) fn short(mut self, len: usize) -> Self {
        self.delivery.cut = Some(len);
        self
    }

    /// Announces `len` bytes, whatever is sent.
    pub(crate) fn claim(mut self, len: u64) -> Self {
        self.delivery.claimed = Some(len);
        self
    }

    /// Chunks in place of a length.
    pub(crate) fn chunked(mut self) -> Self {
        self.delivery.chunked = true;
        self
    }

    /// `piece` bytes of the body at a time, `gap` apart.
    pub(crate) fn pace(mut self, piece: usize, gap: Duration) -> Self {
        self.delivery.pace = Some((piece, gap));
        self
    }

    /// Bytes that nobody announced, after the body.
    pub(crate) fn surplus(mut self, bytes: &[u8]) -> Self {
        self.delivery.surplus = bytes.to_vec();
        self
    }

    /// Ends the connection after the reply.
    pub(crate) fn close(mut self, close: Close) -> Self {
        self.delivery.close = Some(close);
        self
    }

    /// Answers before the body of the request is read, and never reads it.
    pub(crate) fn early(mut self) -> Self {
        self.reads_body = false;
        self
    }

    /// Takes the body of the request `piece` bytes at a time, `gap` apart.
    pub(crate) fn read_pace(mut self, piece: usize, gap: Duration) -> Self {
        self.read_pace = Some((piece, gap));
        self
    }

    /// What precedes the body.
    pub(crate) fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }
}

/// Does `fault` to the first `count` requests and nothing to later ones.
pub(crate) fn first(
    count: usize,
    fault: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> impl Fn(&Request, usize) -> Action + Send + Sync + 'static {
    move |request, n| if n < count { fault(request) } else { Action::normal() }
}

/// Does `fault` to every request.
pub(crate) fn endless(
    fault: impl Fn(&Request) -> Action + Send + Sync + 'static,
) -> impl Fn(&Request, usize) -> Action + Send + Sync + 'static {
    move |request, _| fault(request)
}

/// A limit on requests in time, by a bucket of tokens that holds one second's worth.
#[derive(Debug)]
pub(crate) struct Per {
    rate: f64,
    state: Mutex<(f64, Instant)>,
}

impl Per {
    /// `rate` requests a second.
    pub(crate) fn second(rate: f64) -> Self {
        Self { rate, state: Mutex::new((rate, Instant::now())) }
    }

    /// Whether one more may pass now.
    pub(crate) fn admits(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        let tokens = (state.0 + (now - state.1).as_secs_f64() * self.rate).min(self.rate);
        let admitted = tokens >= 1.0;
        *state = (if admitted { tokens - 1.0 } else { tokens }, now);
        admitted
    }
}

/// Answers `503 SlowDown` to what exceeds `rate` requests a second.
pub(crate) fn per_second(rate: f64) -> impl Fn(&Request, usize) -> Action + Send + Sync + 'static {
    let limit = Per::second(rate);
    move |_, _| if limit.admits() { Action::normal() } else { Action::error(503, "SlowDown") }
}
