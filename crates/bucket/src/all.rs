//! Several requests at the same time within one task. It starts no task and knows no executor.

use env::Local;
use std::future::poll_fn;
use std::task::Poll;

/// Requests under way together at most, where many are to be made.
pub(crate) const TOGETHER: usize = 16;

/// Waits for all of them; the results in their order.
pub(crate) async fn all<T>(mut futures: Vec<Local<'_, T>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_some() {
                continue;
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}
