//! A volume in a bucket: an opening that fails lets go of it.

use bucket::AtRest;
use env::{BUCKET_BYTES, Bucket, DiskId, Nanos};
use format::mkfs::{MkfsOptions, Profile};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;
use volume::{Ground, Mode, OpenOptions};

/// Who comes behind an opening that failed opens at once: the writer has said that it has ended.
#[test]
fn who_could_not_open_a_volume_lets_go_of_it() {
    let mut world = World::new(Image::new(4096));
    let machines = world.machines();
    block_on(&mut world, move |env, _| async move {
        let bucket = SimBucket::new(env.clone(), 1, Trouble::NONE);
        let way: Rc<dyn Bucket> = Rc::new(Way(bucket.machine(None)));
        let options = MkfsOptions {
            block_bytes: lfs::BLOCK_BYTES,
            uuid: [7; 16],
            ..MkfsOptions::plain(4 << 20, Profile::Ext2)
        };
        volume::make_in_bucket(env.clone(), way, &options, (false, AtRest::default()))
            .await
            .unwrap();
        machines.attach(DiskId(0), bucket.machine(None));
        let open = |mode| {
            let ground = Ground::alone(env.clone(), BUCKET_BYTES, None);
            volume::open_on(ground, OpenOptions::plain(mode, 1 << 20, [9; 16]))
        };
        let why = open(Mode::Redo).await.err().expect("it has no journal");
        assert!(why.contains("journal"), "{why}");
        let began = env.now();
        open(Mode::Lfs).await.unwrap().close().await.unwrap();
        let took = env.now().since(began);
        assert!(took < Nanos::from_secs(2), "it took {took:?}");
    });
}
