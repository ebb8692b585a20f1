//! Cutting a connection: the one way to get a page back from a server that neither takes it nor refuses it.
//!
//! The HTTP client writes what it has begun to write also when nobody waits for the answer any more, and for as long as
//! the server lets it wait. So the connection's task is one that can be ended from outside.

use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;

tokio::task_local! {
    static HERE: Line;
}

/// A connection, to who may have to end it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Arc<Notify>);

impl Line {
    /// The connection whose task runs this code.
    pub(crate) fn here() -> Option<Self> {
        HERE.try_with(Clone::clone).ok()
    }

    /// Ends it: what it holds is dropped, and its socket closed.
    pub(crate) fn cut(&self) {
        self.0.notify_one();
    }
}

/// Drives a connection until it ends or is cut.
pub(crate) async fn drive(connection: impl Future<Output = ()>) {
    let line = Line::default();
    let cut = Arc::clone(&line.0);
    let driven = async {
        if let Either::Left(_) = select(pin!(cut.notified()), pin!(connection)).await {
            tracing::debug!("a connection was cut: what was being sent on it is not wanted any more");
        }
    };
    HERE.scope(line, driven).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }

    #[test]
    fn a_connection_that_is_cut_lets_go_of_what_it_holds() {
        run(async {
            let held = Arc::new(());
            let (page, (told, line)) = (Arc::clone(&held), tokio::sync::oneshot::channel());
            let task = tokio::spawn(drive(async move {
                told.send(Line::here().unwrap()).unwrap();
                std::future::pending::<()>().await;
                drop(page);
            }));
            line.await.unwrap().cut();
            task.await.unwrap();
            assert_eq!(Arc::strong_count(&held), 1);
        });
    }

    #[test]
    fn a_connection_that_ends_by_itself_is_over_and_elsewhere_there_is_none() {
        run(drive(std::future::ready(())));
        assert!(Line::here().is_none());
    }
}
