//! Asking again: what is worth it, when, and how often.

use crate::breaker::Pass;
use crate::bucket::Bucket;
use crate::trouble::{Kind, Trouble};
use hicache_core::{Counters, ErrorKind};
use std::time::Duration;
use tokio::time::Instant;

/// The first wait after no answer, doubled each time: a connection that the server had closed costs next to nothing.
const OUTAGE_WAIT: Duration = Duration::from_millis(40);
const OUTAGE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The first wait after a throttle, doubled each time.
const THROTTLE_WAIT: Duration = Duration::from_millis(500);
const THROTTLE_WAIT_MAX: Duration = Duration::from_secs(8);

/// What is asked, for messages and for the account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) operation: &'static str,
    /// The object's key.
    pub(crate) name: &'a str,
    pub(crate) counters: &'a Counters,
    pub(crate) limit: Limit,
}

/// When an operation is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Then; `None` where that is too far away to be told.
    At(Option<Instant>),
    /// When it has taken as long as the store's deadline: of many that follow one another each has that time.
    Each,
}

impl Limit {
    /// When that is for an operation that begins now.
    pub(crate) fn beginning_now(self, bucket: &Bucket) -> Option<Instant> {
        match self {
            Self::At(at) => at,
            Self::Each => Instant::now().checked_add(bucket.options().common.deadline),
        }
    }
}

/// One operation's attempts.
#[derive(Debug)]
pub(crate) struct Tries<'a> {
    bucket: &'a Bucket,
    ask: Ask<'a>,
    deadline: Option<Instant>,
    pass: Option<Pass<'a>>,
    attempts: u32,
    /// Attempts after the first.
    retries: u32,
    /// The last attempt that ended by itself had no answer.
    unanswered: bool,
    /// An attempt may have done what was asked, and nobody said so.
    may_be_done: bool,
    /// What is worth one more attempt each, and no more.
    renewed: Renewed,
}

#[derive(Debug, Default)]
struct Renewed {
    region: bool,
    credentials: bool,
    clock: bool,
    page: bool,
    connection: bool,
}

impl<'a> Tries<'a> {
    pub(crate) fn of(bucket: &'a Bucket, ask: Ask<'a>) -> Result<Self, Trouble> {
        let pass = bucket.breaker().enter().map_err(|(left, why)| {
            let why = format!("the service does not answer and is not asked for {left:.1?} more: {why}");
            Trouble::new(Kind::NotAsked, why)
        })?;
        Ok(Self {
            bucket,
            ask,
            deadline: ask.limit.beginning_now(bucket),
            pass: Some(pass),
            attempts: 0,
            retries: bucket.options().retries,
            unanswered: false,
            may_be_done: false,
            renewed: Renewed::default(),
        })
    }

    /// Gives up after fewer attempts: somebody waits who wants to hear that nothing is there.
    pub(crate) fn at_most(self, retries: u32) -> Self {
        Self { retries: self.retries.min(retries), ..self }
    }

    /// One attempt, up to the deadline.
    pub(crate) async fn once<T>(
        &mut self,
        attempt: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        self.attempts += 1;
        if self.attempts > 1 {
            Counters::add(&self.ask.counters.retries, 1);
        }
        match self.deadline {
            None => attempt.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, attempt).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    Err(Trouble::new(Kind::Late, "the deadline passed before the service had answered"))
                }
            },
        }
    }

    /// What an attempt came to: the value, `None` to try again now (it has waited), or trouble to give up on.
    pub(crate) async fn judge<T>(&mut self, outcome: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
        let mut trouble = match outcome {
            Ok(value) => {
                self.pass.take().into_iter().for_each(Pass::answered);
                return Ok(Some(value));
            }
            Err(trouble) => trouble,
        };
        if let Kind::Region(region) = &trouble.kind
            && trouble.is_bare(400)
            && self.bucket.is_signed_for(region)
        {
            // Then it is something else that is not right, which it does not say.
            trouble.kind = Kind::Refused(ErrorKind::PermissionDenied);
        }
        if trouble.kind == Kind::Skewed && trouble.told.code.is_none() && self.renewed.clock {
            // It was only guessed from the dates, and was not it.
            trouble.kind = Kind::Forbidden;
        }
        if trouble.kind != Kind::Late {
            self.unanswered = matches!(trouble.kind, Kind::Outage | Kind::Stalled);
        }
        if trouble.told.no_descriptors {
            self.bucket.hang_up();
        }
        trouble.told.after_lost_answer = self.may_be_done;
        self.may_be_done |= trouble.may_be_done();
        let wait = match self.wait_for(&trouble) {
            Some(wait) if self.deadline.is_none_or(|deadline| Instant::now() + wait < deadline) => wait,
            _ => return Err(self.give_up(trouble)),
        };
        tracing::debug!(
            operation = self.ask.operation,
            name = self.ask.name,
            attempt = self.attempts,
            ?wait,
            why = trouble.why,
            "asking again"
        );
        tokio::time::sleep_until(Instant::now() + wait).await;
        Ok(None)
    }

    /// How long to wait before the next attempt, if there is to be one.
    fn wait_for(&mut self, trouble: &Trouble) -> Option<Duration> {
        let once = |done: &mut bool| !std::mem::replace(done, true);
        let now = Some(Duration::ZERO);
        match &trouble.kind {
            Kind::Region(region) if once(&mut self.renewed.region) && self.bucket.move_to(region) => now,
            Kind::Expired if once(&mut self.renewed.credentials) && self.bucket.renew_credentials() => now,
            // They were rotated, and the old ones taken away; or nothing more is said, as where they have expired.
            Kind::Refused(_)
                if (matches!(trouble.told.code.as_deref(), Some("InvalidAccessKeyId" | "InvalidToken"))
                    || trouble.is_bare(400))
                    && once(&mut self.renewed.credentials)
                    && self.bucket.renew_credentials() =>
            {
                now
            }
            // The service's time was taken from the answer.
            Kind::Skewed if once(&mut self.renewed.clock) => now,
            Kind::Unknown(what) if self.bucket.go_without(what) => now,
            Kind::Flaw(flaw) if flaw.may_be_of_the_way() && once(&mut self.renewed.page) => now,
            Kind::Outage
                if trouble.told.was_closed
                    && self.attempts <= self.retries
                    && once(&mut self.renewed.connection) =>
            {
                now
            }
            Kind::Outage | Kind::Stalled | Kind::Throttled | Kind::Unsigned
                if self.attempts <= self.retries =>
            {
                // A HEAD is not told that it is a throttle.
                let unsaid = trouble.is_bare(503);
                let (first, most) = match trouble.kind {
                    Kind::Throttled => (THROTTLE_WAIT, THROTTLE_WAIT_MAX),
                    _ if unsaid => (THROTTLE_WAIT, THROTTLE_WAIT_MAX),
                    _ => (OUTAGE_WAIT, OUTAGE_WAIT_MAX),
                };
                let grown = first.saturating_mul(1 << (self.attempts - 1).min(16)).min(most);
                // Apart from one another, so that those who failed together do not come again together.
                let wait = grown.mul_f64(0.5 + fastrand::f64());
                Some(trouble.told.retry_after.map_or(wait, |after| after.max(wait)))
            }
            _ => None,
        }
    }

    fn give_up(&mut self, mut trouble: Trouble) -> Trouble {
        if let Some(pass) = self.pass.take() {
            match trouble.kind {
                Kind::Outage | Kind::Stalled | Kind::Late if self.unanswered => pass.failed(&trouble.why),
                Kind::Late => pass.cut_off(&trouble.why, self.bucket.options().read_timeout),
                _ if trouble.is_answer() => pass.answered(),
                _ => drop(pass),
            }
        }
        if self.attempts > 1 {
            trouble.why = format!("{} (after {} attempts)", trouble.why, self.attempts);
        }
        trouble
    }
}
