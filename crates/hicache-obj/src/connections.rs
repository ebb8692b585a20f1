//! The connections to one server: kept between requests, as many as there may be requests at once.

use crate::connection::Connection;
use crate::dial::{BoxError, Dialer};
use http::Uri;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Connections {
    dialer: Dialer,
    origin: Uri,
    idle_timeout: Duration,
    turns: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// Connections that nobody uses.
#[derive(Debug, Default)]
struct Idle {
    /// Each with when it was last used; the last one is used next.
    held: Vec<(Connection, Instant)>,
    /// Somebody closes those that nobody uses for long.
    watched: bool,
}

/// A right to one of the connections.
#[derive(Debug)]
pub(crate) struct Turn {
    of: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

/// A connection in use. Dropped at a request's end it is kept for the next one, and closed before that.
#[derive(Debug)]
pub(crate) struct Line {
    turn: Turn,
    /// `None` once it is dropped.
    connection: Option<Connection>,
    was_used: bool,
}

impl Connections {
    pub(crate) fn new(dialer: Dialer, origin: Uri, most: usize, idle_timeout: Duration) -> Self {
        Self { dialer, origin, idle_timeout, turns: Arc::new(Semaphore::new(most)), idle: Mutex::default() }
    }

    /// Waits for a connection to be free, or for room for one more.
    pub(crate) async fn turn(self: Arc<Self>) -> Turn {
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        Turn { of: self, _permit: permit.expect("nobody closes it") }
    }

    /// The proxy on the way, without who uses it.
    pub(crate) fn proxy(&self) -> Option<String> {
        self.dialer.proxy(&self.origin).map(|proxy| proxy.uri().to_string())
    }

    /// Closes those that nobody uses.
    pub(crate) fn hang_up(&self) {
        self.lock().held.clear();
    }

    fn next_idle(&self) -> Option<Connection> {
        let (connection, since) = self.lock().held.pop()?;
        (since.elapsed() < self.idle_timeout).then_some(connection)
    }

    fn keep(self: &Arc<Self>, connection: Connection) {
        // Without a runtime the store is gone.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = self.lock();
        idle.held.push((connection, Instant::now()));
        if !std::mem::replace(&mut idle.watched, true) {
            drop(idle);
            runtime.spawn(watch(Arc::downgrade(self), self.idle_timeout));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what nobody has used for long, as long as there is anything to close.
async fn watch(connections: Weak<Connections>, idle_timeout: Duration) {
    loop {
        let oldest = {
            let Some(connections) = connections.upgrade() else { return };
            let mut idle = connections.lock();
            idle.held.retain(|(_, since)| since.elapsed() < idle_timeout);
            match idle.held.first() {
                Some((_, since)) => *since,
                None => {
                    idle.watched = false;
                    return;
                }
            }
        };
        match oldest.checked_add(idle_timeout) {
            Some(due) => tokio::time::sleep_until(due).await,
            None => return,
        }
    }
}

impl Turn {
    /// A connection that was used before, or a new one.
    pub(crate) async fn line(self) -> Result<Line, BoxError> {
        while let Some(mut connection) = self.of.next_idle() {
            if connection.is_open().await {
                return Ok(Line { turn: self, connection: Some(connection), was_used: true });
            }
        }
        let socket = self.of.dialer.dial(&self.of.origin).await?;
        Ok(Line { turn: self, connection: Some(Connection::new(socket)), was_used: false })
    }
}

impl Line {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is there until this is dropped")
    }

    /// Whether requests before this one have used it: it may have been closed since.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used
    }

    /// Reads of the answer's body; nothing at its end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.connection().poll_body(cx, into)
    }

    /// The same, as something to wait for.
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, into)).await
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(Connection::is_free) {
            self.turn.of.keep(connection);
        }
    }
}
