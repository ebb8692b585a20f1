//! The requests that every client is given.

use crate::Flags;
use crate::step::{Started, Step};
use bytes::Bytes;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// What went wrong in a task.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A client of one bucket.
pub(crate) trait Objects: Send + Sync + 'static {
    fn put(&self, key: String, body: Bytes) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Fills all of `into`, or fails.
    fn get(&self, key: String, into: &mut [u8]) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Fails if it is not there.
    fn head(&self, key: String) -> impl Future<Output = Result<(), Failure>> + Send;
    fn remove(&self, key: String) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// How much of it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    prefix: String,
    pages: usize,
    concurrency: usize,
    checked: bool,
    /// One for each request under way: bytes that come from memory, as a pool's do, and not from a cache.
    bodies: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Put,
    Head,
    Get,
    Remove,
}

impl Load {
    pub(crate) fn new(flags: &Flags) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut body = || {
            let mut body = vec![0; flags.page_bytes];
            for word in body.chunks_mut(size_of::<u64>()) {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
            Bytes::from(body)
        };
        Self {
            prefix: flags.prefix.clone(),
            pages: flags.pages,
            concurrency: flags.concurrency,
            checked: !flags.unchecked,
            bodies: (0..flags.concurrency).map(|_| body()).collect(),
        }
    }

    /// Writes all, asks for all, reads all; and removes all, which is not measured.
    pub(crate) async fn run<C: Objects>(&self, client: Arc<C>) -> Result<[Step; 3], Failure> {
        let write = self.step(&client, Request::Put).await?;
        let exists = self.step(&client, Request::Head).await?;
        let read = self.step(&client, Request::Get).await?;
        self.step(&client, Request::Remove).await?;
        Ok([write, exists, read])
    }

    async fn step<C: Objects>(&self, client: &Arc<C>, request: Request) -> Result<Step, Failure> {
        let started = Started::now();
        let tasks: Vec<_> = (0..self.concurrency)
            .map(|first| tokio::spawn(self.clone().share(Arc::clone(client), request, first)))
            .collect();
        let mut took = Vec::with_capacity(self.pages);
        for task in tasks {
            took.extend(task.await??);
        }
        let moved = matches!(request, Request::Put | Request::Get);
        Ok(started.done(if moved { self.pages * self.bodies[0].len() } else { 0 }, took))
    }

    /// Every so-many-th request, one after the other.
    async fn share<C: Objects>(
        self,
        client: Arc<C>,
        request: Request,
        first: usize,
    ) -> Result<Vec<std::time::Duration>, Failure> {
        let mut took = Vec::with_capacity(self.pages / self.concurrency + 1);
        let body = &self.bodies[first];
        let mut into = vec![0; if request == Request::Get { body.len() } else { 0 }];
        for number in (first..self.pages).step_by(self.concurrency) {
            let key = format!("{}/{number:08}", self.prefix);
            let begun = Instant::now();
            match request {
                Request::Put => client.put(key, body.clone()).await?,
                Request::Head => client.head(key).await?,
                Request::Get => client.get(key, &mut into).await?,
                Request::Remove => client.remove(key).await?,
            }
            took.push(begun.elapsed());
        }
        if self.checked && request == Request::Get && !took.is_empty() && into != *body {
            return Err("an object came back with other bytes than it was given".into());
        }
        Ok(took)
    }
}

/// Copies a chunk to its place.
pub(crate) fn fill(into: &mut [u8], at: &mut usize, chunk: &[u8]) -> Result<(), Failure> {
    let end = *at + chunk.len();
    let place = into.get_mut(*at..end).ok_or_else(|| io::Error::other("an object is longer than it was"))?;
    place.copy_from_slice(chunk);
    *at = end;
    Ok(())
}

/// Whether every byte came.
pub(crate) fn filled(into: &[u8], at: usize) -> Result<(), Failure> {
    if at == into.len() { Ok(()) } else { Err(format!("an object has {at} bytes of {}", into.len()).into()) }
}
