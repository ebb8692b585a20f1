//! A get that a ring reads: who asked, and what is made of what the ring says.

use crate::backend::View;
use crate::bounce::Passage;
use crate::engine::{Job, Turn, late};
use crate::slot::Slot;
use crate::trailer::{Flaw, Trailer};
use hicache_core::{Counters, Error, ErrorKind, Page, PageKey, PageMut, Reply, Result};
use std::sync::Arc;

/// Who asked for a page.
pub(crate) struct Asked {
    /// Keeps the directory open that the page's path is relative to.
    pub(crate) view: Arc<View>,
    pub(crate) root: usize,
    pub(crate) key: PageKey,
    pub(crate) reply: Reply<Option<Page>>,
    /// How it was said to go, where there are two ways.
    pub(crate) begun: Option<Passage>,
    /// Where the page is to go, if what the ring has is a slot that it bounces through.
    pub(crate) into: Option<PageMut>,
    /// The page lies in memory that the ring which read it knows.
    pub(crate) registered: bool,
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
    Judge(PageMut, Trailer),
    Miss(PageMut),
    Read(PageMut),
    Late(PageMut),
    Lost,
}

impl Asked {
    /// Of `len` bytes of its page, those that are looked at, or copied, when it ends.
    pub(crate) fn judged_len(&self, len: usize) -> usize {
        if self.view.files.options.checksum || self.into.is_some() { len } else { 0 }
    }

    /// What a tail says that was read with its page.
    pub(crate) fn decode(&self, tail: &[u8]) -> std::result::Result<Trailer, Flaw> {
        Trailer::decode(tail, self.view.files.roots[self.root].block())
    }

    /// The job that ends it. Nothing is freed, and nobody woken, before it runs: it is for a worker.
    pub(crate) fn job(mut self, completed: Completed) -> Job {
        let end = self.end(completed);
        self.job_of(end)
    }

    /// Ends it on this thread, unless something is to be read for that: then a worker does.
    pub(crate) fn settle(mut self, completed: Completed) -> Option<Job> {
        let outcome = match self.end(completed) {
            End::Judge(page, trailer) => match self.serve(page, trailer) {
                Ok(page) => Ok(page),
                Err(Some(page)) => return Some(self.job_of(End::Read(page))),
                Err(None) => Err(lost()),
            },
            End::Miss(page) => self.miss(page),
            End::Late(page) => self.late(page),
            End::Lost => Err(lost()),
            other => return Some(self.job_of(other)),
        };
        self.answer(outcome);
        None
    }

    fn job_of(mut self, end: End) -> Job {
        let counters = Arc::clone(&self.view.counters);
        let reads = matches!(end, End::Read(_));
        // What the kernel has done is judged, however late it is.
        let run = move |turn: Turn<'_>| {
            if let Turn::Go(slot) = turn {
                let outcome = self.outcome(end, slot);
                self.answer(outcome);
            }
        };
        Job { deadline: None, run: Box::new(run), counters, waits: reads }
    }

    fn end(&mut self, completed: Completed) -> End {
        match completed {
            Completed::Whole(page, Ok(trailer)) => End::Judge(page, trailer),
            Completed::Whole(page, Err(_)) | Completed::Unclear(page) => End::Read(self.target(page)),
            Completed::Absent(page) => End::Miss(self.target(page)),
            Completed::Late(page) => End::Late(self.target(page)),
            Completed::Lost => End::Lost,
        }
    }

    /// The page that was asked for. Where a slot was read into, that is free again at once.
    fn target(&mut self, read: PageMut) -> PageMut {
        self.into.take().unwrap_or(read)
    }

    /// As [`PageFiles::serve_read`](crate::page_file::PageFiles::serve_read).
    fn serve(
        &mut self,
        read: PageMut,
        trailer: Trailer,
    ) -> std::result::Result<Option<Page>, Option<PageMut>> {
        let into = self.into.take();
        let served = self.view.at(self.root).serve_read(&self.key, read, into, trailer)?;
        Counters::add(&self.view.counters.registered, u64::from(self.registered && served.is_some()));
        Ok(served)
    }

    fn outcome(&mut self, end: End, slot: &mut Slot) -> Result<Option<Page>> {
        match end {
            End::Judge(page, trailer) => match self.serve(page, trailer) {
                Ok(page) => Ok(page),
                // Read again by rules that know what to do with it.
                Err(Some(page)) => self.view.at(self.root).get(&self.key, page, slot, None),
                Err(None) => Err(lost()),
            },
            End::Read(page) => self.view.at(self.root).get(&self.key, page, slot, None),
            End::Miss(page) => self.miss(page),
            End::Late(page) => self.late(page),
            End::Lost => Err(lost()),
        }
    }

    fn answer(self, outcome: Result<Option<Page>>) {
        if let (Some(begun), Ok(Some(page))) = (self.begun, &outcome) {
            begun.arrived(page.len());
        }
        self.view.answer(self.reply, outcome);
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
