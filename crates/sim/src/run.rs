//! One engine, one disk, one future, run to its end: for unit tests of other crates. A future
//! that never ends is a failed test which names the tasks that wait.

use crate::world::World;
use env::{Disk, DiskId, Engine, Env};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// Runs `f` in a world, on its disk, and gives back what it returns. Panics if nothing can happen
/// any more.
pub fn block_on<T: 'static, F>(world: &mut World, f: impl FnOnce(Env, Rc<dyn Disk>) -> F) -> T
where
    F: Future<Output = T> + 'static,
{
    let mut engine = Engine::new(1);
    let size = world.disk.size();
    let out = Rc::new(RefCell::new(None));
    let mut start = Some((f, out.clone()));
    world.run(
        &mut engine,
        |env| {
            if let Some((f, out)) = start.take() {
                let future = f(env.clone(), env.port().disk(DiskId(0), size));
                env.spawn("main", async move {
                    let value = future.await;
                    out.borrow_mut().replace(value);
                });
            }
        },
        |_| out.borrow().is_some(),
    );
    let value = out.borrow_mut().take();
    engine.kill();
    value.expect("the task has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::by_name;
    use crate::{CrashImages, Fault, Image};
    use env::{Block, Durability, Nanos};

    fn world() -> World {
        World::new(Image::new(1 << 20))
    }
    fn byte(image: &Image, at: u64) -> u8 {
        let mut b = [0];
        image.read(at, &mut b);
        b[0]
    }

    #[test]
    fn what_was_not_flushed_can_be_lost() {
        let mut w = world();
        let base = w.disk.clone();
        block_on(&mut w, |_, disk| async move {
            let put = |at, v| disk.write(at, vec![Block::copy_of(&[v; 512])], Durability::Cached);
            put(0, 1).await.unwrap();
            disk.flush().await.unwrap();
            put(512, 2).await.unwrap();
            let back = disk.read(512, vec![Block::zeroed(512)]).await.unwrap();
            assert_eq!(back[0].bytes()[0], 2);
        });
        let mut cuts = CrashImages::new(&w.trace, &base);
        while cuts.step().is_some() {}
        assert_eq!((byte(&cuts.image(0), 0), byte(&cuts.image(0), 512)), (1, 0));
        assert_eq!(byte(&cuts.image(1), 512), 2);
    }

    #[test]
    fn a_failed_write_leaves_a_mixture() {
        let mut w = world();
        w.set_fault(Fault::Write(1));
        block_on(&mut w, |_, disk| async move {
            let put = |v| disk.write(0, vec![Block::copy_of(&[v; 8192])], Durability::Fua);
            put(1).await.unwrap();
            assert!(put(2).await.is_err());
        });
        let sectors: Vec<u8> = (0..16).map(|i| byte(&w.disk, i * 512)).collect();
        assert!(sectors.contains(&1) && sectors.contains(&2), "{sectors:?}");
    }

    #[test]
    fn a_model_makes_time_pass() {
        let mut w = world();
        let model = by_name("rz26", 1 << 30).unwrap();
        w.set_timings(vec![model]);
        let took = block_on(&mut w, |env, disk| async move {
            for i in 0..10 {
                let block = vec![Block::zeroed(512)];
                disk.write(i * 512, block, Durability::Fua).await.unwrap();
            }
            env.now()
        });
        assert!((Nanos::from_millis(90)..Nanos::from_millis(130)).contains(&took), "{took:?}");
    }

    #[test]
    #[should_panic(expected = "alive: [\"main\"]")]
    fn a_future_that_never_ends_is_named() {
        block_on(&mut world(), |_, _| std::future::pending::<()>());
    }

    #[test]
    #[should_panic(expected = "two writes in flight to one place")]
    fn overlapping_writes_are_a_bug() {
        block_on(&mut world(), |env, disk| async move {
            let d = disk.clone();
            env.spawn("other", async move {
                let _ = d.write(0, vec![Block::zeroed(1024)], Durability::Cached).await;
            });
            let _ = disk.write(512, vec![Block::zeroed(512)], Durability::Cached).await;
            env.sleep(Nanos::from_millis(10)).await;
        });
    }

    /// Reads the sector that another one is writing.
    fn read_beside_a_write(fresh: bool) {
        let mut world = world();
        world.refuse_mixed_requests();
        block_on(&mut world, |env, disk| async move {
            let d = disk.clone();
            env.spawn("other", async move {
                let _ = d.write(0, vec![Block::zeroed(1024)], Durability::Cached).await;
            });
            env.sleep(Nanos(1)).await;
            let sector = vec![Block::zeroed(512)];
            let _ = if fresh { disk.read_fresh(512, sector) } else { disk.read(512, sector) }.await;
            env.sleep(Nanos::from_millis(10)).await;
        });
    }

    #[test]
    #[should_panic(expected = "what is being written is read")]
    fn what_is_being_written_is_not_read() {
        read_beside_a_write(false);
    }

    #[test]
    fn past_what_the_host_keeps_it_may_be() {
        read_beside_a_write(true);
    }
}
