//! How much of a line to a far-away bucket is used, in virtual time: 20 ms for each request, and
//! 100 MB/s for all together. The processor takes next to no time here, so these are bounds of what
//! the order of requests allows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_macros, reason = "the figures are shown with --nocapture")]

use bucket::{AtRest, FormatOptions, OpenOptions, Store};
use env::sync::Lock;
use env::{Block, Bucket, Disk, Durability, Env, Nanos, Rng};
use lfs::{Change, Group, Virt};
use sim::{Image, Line, SimBucket, Way, World, block_on};
use std::cell::Cell;
use std::rc::Rc;

const FAR: Line = Line { delay: Nanos::from_millis(20), bytes_per_s: 100_000_000 };
const BLOCKS: u64 = 32 << 10;
/// What a processor takes for a request.
const WORK: Nanos = Nanos::from_micros(50);
/// Requests outstanding.
const CLIENTS: u64 = 256;
const MIB: f64 = (1 << 20) as f64;

async fn opened(env: &Env, bucket: &SimBucket, at_rest: AtRest) -> Result<Store, String> {
    let way = || -> Rc<dyn Bucket> { Rc::new(Way(bucket.machine(None))) };
    let format = FormatOptions { uuid: [7; 16], size_bytes: BLOCKS * 4096, force: false, at_rest };
    bucket::format(env.clone(), way(), &format).await?.finish().await?;
    open(env, bucket).await
}

async fn open(env: &Env, bucket: &SimBucket) -> Result<Store, String> {
    let way: Rc<dyn Bucket> = Rc::new(Way(bucket.machine(None)));
    Store::open(env.clone(), way, OpenOptions::default()).await
}

/// What nobody can make shorter.
fn noise(rng: &mut Rng) -> Block {
    let mut block = Block::zeroed(4096);
    for word in block.bytes_mut().chunks_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    block
}

fn in_world<F: Future<Output = Result<(), String>> + 'static>(f: impl FnOnce(Env) -> F + 'static) {
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, move |env, _| f(env)).unwrap();
}

/// Each of many clients has one change of three blocks made durable after the other: at least 70 %
/// of what one PUT at a time for each would come to, and at least 20 share one.
#[test]
fn those_who_wait_share_puts() {
    in_world(|env| async move {
        let bucket = SimBucket::behind(env.clone(), FAR);
        let store = opened(&env, &bucket, AtRest { compressed: true, key: None }).await?;
        let (done, processor) = (Rc::new(Cell::new(0)), Lock::new());
        let (began, seconds) = (env.now(), 4);
        let before = store.stats();
        let end = began.plus(Nanos::from_secs(seconds));
        for client in 0..CLIENTS {
            let (store, env, done) = (store.clone(), env.clone(), done.clone());
            let processor = processor.clone();
            env.clone().spawn("client", async move {
                for n in 0.. {
                    if env.now() >= end {
                        return;
                    }
                    let mut block = Block::zeroed(4096);
                    block.bytes_mut()[..8].copy_from_slice(&(n + client).to_le_bytes());
                    let changes = [client, 1000 + n % 64, 2000 + client / 16]
                        .map(|v| Change::Whole(Virt(v), block.clone()));
                    let group = Group { changes: changes.into() };
                    // Else all would be done at one moment, and never again apart.
                    let work = processor.lock().await;
                    env.sleep(WORK).await;
                    drop(work);
                    let number = store.put(&group).await.unwrap();
                    store.flush_to(number).await.unwrap();
                    done.set(done.get() + 1);
                }
            });
        }
        env.sleep(Nanos::from_secs(seconds + 1)).await;
        let now = store.stats();
        let (puts, each) = (now.requests[0] - before.requests[0], now.put_micros as f64 / 1e6);
        let rate = done.get() as f64 / seconds as f64;
        let share = rate / (CLIENTS as f64 / each);
        println!("{rate:.0} a second, {share:.2} of {CLIENTS} / {each:.4} s, {puts} PUTs");
        assert!(share >= 0.7, "{share} of {CLIENTS} / {each} s");
        assert!(puts * 20 <= done.get(), "{puts} PUTs for {}", done.get());
        Ok(())
    });
}

/// One who writes, and then one who reads, from the first block to the last.
#[test]
fn who_goes_on_fills_the_line() {
    in_world(|env| async move {
        for compressed in [false, true] {
            let bucket = SimBucket::behind(env.clone(), FAR);
            let store = opened(&env, &bucket, AtRest { compressed, key: None }).await?;
            let (mut rng, text) = (Rng::new(1), |e: env::DiskError| e.to_string());
            let began = env.now();
            let of_line = |began: Nanos| {
                let seconds = env.now().since(began).0 as f64 / 1e9;
                (BLOCKS * 4096) as f64 / seconds / FAR.bytes_per_s as f64
            };
            for at in (0..BLOCKS).step_by(256) {
                let blocks = (0..256).map(|_| noise(&mut rng)).collect();
                store.write(at * 4096, blocks, Durability::Cached).await.map_err(text)?;
            }
            store.flush().await.map_err(text)?;
            let wrote = of_line(began);
            store.close().await.map_err(text)?;
            let store = open(&env, &bucket).await?;
            let began = env.now();
            for at in (0..BLOCKS).step_by(32) {
                let memory = (0..32).map(|_| Block::zeroed(4096)).collect();
                store.read(at * 4096, memory).await.map_err(text)?;
            }
            let read = of_line(began);
            let size = (BLOCKS * 4096) as f64 / MIB;
            println!("{size} MiB, compressed {compressed}: {wrote:.3} and {read:.3} of the line");
            assert!(wrote >= 0.9 && read >= 0.9, "{wrote} and {read} of the line");
        }
        Ok(())
    });
}
