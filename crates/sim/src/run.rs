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

    /// Two writes of one sector under way together.
    fn write_twice(mut world: World) {
        block_on(&mut world, |env, disk| async move {
            let d = disk.clone();
            env.spawn("other", async move {
                let _ = d.write(0, vec![Block::zeroed(1024)], Durability::Cached).await;
            });
            env.sleep(Nanos(1)).await;
            let _ = disk.write(512, vec![Block::zeroed(512)], Durability::Cached).await;
        });
    }

    #[test]
    #[should_panic(expected = "W3: two writes in flight to one place")]
    fn a_write_that_will_fail_is_a_neighbour_as_any_other() {
        let mut world = world();
        world.set_fault(Fault::Write(0));
        write_twice(world);
    }

    #[test]
    #[should_panic(expected = "W3: two writes in flight to one place")]
    fn where_nothing_is_recorded_writes_have_neighbours_too() {
        let mut world = world();
        world.forget();
        write_twice(world);
    }

    #[test]
    fn what_was_under_way_when_all_was_forgotten_leaves_no_trace() {
        let mut world = world();
        block_on(&mut world, |env, disk| async move {
            env.spawn("write", async move {
                let _ = disk.write(0, vec![Block::zeroed(512)], Durability::Cached).await;
            });
            env.sleep(Nanos(1)).await;
        });
        assert_eq!(world.trace.writes.len(), 1);
        world.forget();
        block_on(&mut world, |env, _| async move { env.sleep(Nanos::from_millis(10)).await });
        assert!(world.trace.events.is_empty(), "W6: {:?}", world.trace.events);
    }

    /// Random requests of three disks, some of which fail; now and then nothing is recorded from
    /// there on, or the traffic is taken away: it is counted as a naive twin has it.
    #[test]
    fn what_is_asked_is_counted_at_the_world_and_at_its_disk() {
        for seed in 0..20 {
            let mut w = world();
            w.logs = vec![Image::new(1 << 20); 2];
            w.set_fault(Fault::Write(seed / 4));
            let mut rng = env::Rng::new(seed);
            let (mut all, mut since) = ([0; 3], [[0; 5]; 3]);
            for step in 0..60 {
                let (n, what) = (rng.below(3), rng.below(5));
                let (at, sectors) = (rng.below(1000) * 512, 1 + rng.below(8));
                let bytes = sectors * 512;
                block_on(&mut w, move |env, _| async move {
                    let disk = env.port().disk(DiskId(n as u16), 1 << 20);
                    let block = || vec![Block::zeroed(bytes as usize)];
                    let _ = match what {
                        0 => disk.read(at, block()).await.map(drop),
                        1 | 2 => disk.write(at, block(), Durability::Cached).await,
                        3 => disk.flush().await,
                        _ => disk.discard(at, bytes).await,
                    };
                });
                let one = &mut since[n as usize];
                match what {
                    0 => (all[0], one[0], one[1]) = (all[0] + 1, one[0] + 1, one[1] + bytes),
                    1 | 2 => (all[1], one[2], one[3]) = (all[1] + 1, one[2] + 1, one[3] + bytes),
                    3 => (all[2], one[4]) = (all[2] + 1, one[4] + 1),
                    // A discard is a write where it is recorded.
                    _ => all[1] += u64::from(step <= 40),
                }
                assert_eq!(w.counts, all, "W4: seed {seed}");
                let of = |t: &crate::Traffic| {
                    [t.reads, t.read_bytes, t.writes, t.write_bytes, t.flushes]
                };
                let mut told: Vec<[u64; 5]> = w.traffic().iter().map(of).collect();
                told.resize(3, [0; 5]);
                assert_eq!(told, since, "W4: seed {seed}");
                if step == 40 {
                    w.forget();
                }
                if rng.one_in(9) {
                    since = [[0; 5]; 3];
                    w.take_traffic();
                }
            }
            assert!(w.trace.events.is_empty() && w.has_failed(), "W6: seed {seed}");
        }
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
