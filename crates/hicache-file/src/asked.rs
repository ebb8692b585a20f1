//! A get that a ring reads: who asked, and what is made of what the ring says.

use crate::backend::View;
use crate::engine::{Job, Turn, late};
use crate::slot::Slot;
use crate::trailer::{Flaw, Trailer};
use hicache_core::{Error, ErrorKind, Page, PageKey, PageMut, Reply, Result};
use std::sync::Arc;

/// Who asked for a page.
pub(crate) struct Asked {
    /// Keeps the directory open that the page's path is relative to.
    pub(crate) view: Arc<View>,
    pub(crate) root: usize,
    pub(crate) key: PageKey,
    pub(crate) reply: Reply<Option<Page>>,
}

/// What came of a ring's read.
pub(crate) enum Completed {
    /// All of it, and not a byte more; this is what its trailer says.
    Whole(PageMut, std::result::Result<Trailer, Flaw>),
    /// There is no such file.
    Absent(PageMut),
    /// Something else: to be read again by a worker.
    Unclear(PageMut),
    /// Not begun by its deadline, or the kernel let go of it then.
    Late(PageMut),
    /// The ring failed while the kernel had the page, which is leaked.
    Lost,
}

/// What is left to be done.
enum End {
    Judge(PageMut, std::result::Result<Trailer, Flaw>),
    Miss(PageMut),
    Read(PageMut),
    Late(PageMut),
    Lost,
}

impl Asked {
    /// Of `len` bytes of its page, those that are looked at when it ends.
    pub(crate) fn judged_len(&self, len: usize) -> usize {
        if self.view.files.options.checksum { len } else { 0 }
    }

    /// What a tail says that was read with its page.
    pub(crate) fn decode(&self, tail: &[u8]) -> std::result::Result<Trailer, Flaw> {
        Trailer::decode(tail, self.view.files.roots[self.root].block())
    }

    /// The job that ends it. Nothing is freed, and nobody woken, before it runs: it is for a worker.
    pub(crate) fn job(self, completed: Completed) -> Job {
        let end = Self::end(completed);
        self.job_of(end)
    }

    /// Ends it on this thread, unless something is to be read for that: then a worker does.
    pub(crate) fn settle(self, completed: Completed) -> Option<Job> {
        let files = self.view.at(self.root);
        let outcome = match Self::end(completed) {
            End::Judge(page, Ok(trailer)) => match files.serve_read(&self.key, page, trailer) {
                Ok(page) => Ok(page),
                Err(Some(page)) => return Some(self.job_of(End::Read(page))),
                Err(None) => Err(lost()),
            },
            End::Miss(page) => self.miss(page),
            End::Late(page) => self.late(page),
            End::Lost => Err(lost()),
            other => return Some(self.job_of(other)),
        };
        self.view.answer(self.reply, outcome);
        None
    }

    fn job_of(self, end: End) -> Job {
        let counters = Arc::clone(&self.view.counters);
        let reads = matches!(end, End::Read(_) | End::Judge(_, Err(_)));
        // What the kernel has done is judged, however late it is.
        let run = move |turn: Turn<'_>| {
            if let Turn::Go(slot) = turn {
                let outcome = self.outcome(end, slot);
                self.view.answer(self.reply, outcome);
            }
        };
        Job { deadline: None, run: Box::new(run), counters, waits: reads }
    }

    fn end(completed: Completed) -> End {
        match completed {
            Completed::Whole(page, trailer) => End::Judge(page, trailer),
            Completed::Absent(page) => End::Miss(page),
            Completed::Unclear(page) => End::Read(page),
            Completed::Late(page) => End::Late(page),
            Completed::Lost => End::Lost,
        }
    }

    fn outcome(&self, end: End, slot: &mut Slot) -> Result<Option<Page>> {
        let files = self.view.at(self.root);
        match end {
            End::Judge(page, Ok(trailer)) => match files.serve_read(&self.key, page, trailer) {
                Ok(page) => Ok(page),
                // Read again by rules that know what to do with it.
                Err(Some(page)) => files.get(&self.key, page, slot),
                Err(None) => Err(lost()),
            },
            End::Judge(page, Err(_)) | End::Read(page) => files.get(&self.key, page, slot),
            End::Miss(page) => self.miss(page),
            End::Late(page) => self.late(page),
            End::Lost => Err(lost()),
        }
    }

    fn miss(&self, page: PageMut) -> Result<Option<Page>> {
        drop(page);
        self.view.at(self.root).count_miss();
        Ok(None)
    }

    fn late(&self, page: PageMut) -> Result<Option<Page>> {
        drop(page);
        Err(late())
    }
}

/// The error of a page that a failed ring took with it.
fn lost() -> Error {
    Error::new(ErrorKind::Io, "get page").why("the ring failed while the kernel had the page").retryable()
}
