//! Several things at the same time within one task, where a task of its own would outlive its
//! caller. It starts no task and knows no executor.

use crate::Local;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Waits for `a`, but no longer than for `stop`; None: `stop` came first.
pub async fn unless<A>(a: impl Future<Output = A>, stop: impl Future<Output = ()>) -> Option<A> {
    let (mut a, mut stop) = (pin!(a), pin!(stop));
    poll_fn(move |cx| match a.as_mut().poll(cx) {
        Poll::Ready(x) => Poll::Ready(Some(x)),
        Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Waits for both.
pub async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(move |cx| {
        if left.is_none()
            && let Poll::Ready(x) = a.as_mut().poll(cx)
        {
            left = Some(x);
        }
        if right.is_none()
            && let Poll::Ready(x) = b.as_mut().poll(cx)
        {
            right = Some(x);
        }
        if left.is_none() || right.is_none() {
            return Poll::Pending;
        }
        Poll::Ready((left.take().expect("it is there"), right.take().expect("it is there")))
    })
    .await
}

/// Waits for all of them, which are few: each is looked at whenever one has moved. What they give
/// is in their order.
pub async fn all<T>(futures: Vec<Local<'_, T>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut waiting: Vec<_> = futures.into_iter().enumerate().collect();
    poll_fn(|cx| {
        waiting.retain_mut(|(n, f)| match f.as_mut().poll(cx) {
            Poll::Ready(x) => {
                results[*n] = Some(x);
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|x| x.expect("none of them waits any more")).collect()
}
