//! Makes a volume of 4 TiB in a log-structured store whose table has millions of extents, in a
//! sparse image that takes little: the blocks hold zeros, and zeros are not written. With `log` it
//! opens one that is there, writes as many blocks again as fit into the log without a checkpoint,
//! and ends as if it had been killed. scripts/large-store.sh opens both with the real program.
//!
//! ```text
//!  large_store make IMAGE EXTENTS
//!  large_store log IMAGE BLOCKS
//! ```

use env::{Block, Disk, DiskError, DiskId, Durability, Env, IdSet, Local};
use format::mkfs::{MkfsOptions, Profile};
use host::{HostFile, drive};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Store, Virt};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const VOLUME_BYTES: u64 = 4 << 40;
/// The image: beside the volume it holds what the cleaner and the table need.
const IMAGE_BYTES: u64 = VOLUME_BYTES + (VOLUME_BYTES >> 3);
/// From here on blocks are written that no file has, every other one.
const FIRST: u64 = 1 << 20;
/// Blocks in a group.
const TOGETHER: u64 = 64;

/// Blocks of zeros are not written where nothing else was.
struct Sparse {
    below: Rc<dyn Disk>,
    solid: RefCell<IdSet<u64>>,
}

impl Sparse {
    fn goes(&self, place: u64, block: &Block) -> bool {
        let is_zero = block.bytes().iter().all(|b| *b == 0);
        let solid = &mut *self.solid.borrow_mut();
        if !is_zero {
            solid.insert(place);
        }
        !is_zero || solid.contains(&place)
    }
}

impl Disk for Sparse {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        self.below.read(at, blocks)
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let (mut run, mut from, mut next) = (Vec::new(), at, at);
            for block in blocks {
                let len = block.len() as u64;
                if self.goes(next / BLOCK_BYTES as u64, &block) {
                    run.push(block);
                } else if !run.is_empty() {
                    self.below.write(from, std::mem::take(&mut run), how).await?;
                }
                next += len;
                if run.is_empty() {
                    from = next;
                }
            }
            if run.is_empty() { Ok(()) } else { self.below.write(from, run, how).await }
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        self.below.flush()
    }
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        self.below.discard(at, len)
    }
}

/// The `n`-th block of so many, which are visited out of order.
fn nth(n: u64, of: u64) -> Virt {
    Virt(FIRST + 2 * (n * 7_368_787 % of))
}

async fn put(store: &Store, blocks: &[Virt]) -> Result<u64, String> {
    let zero = Block::zeroed(BLOCK_BYTES);
    let changes = blocks.iter().map(|v| Change::Whole(*v, zero.clone())).collect();
    let text = |e: DiskError| e.to_string();
    let kept = store.reserve(blocks.len() as u64).await.map_err(text)?;
    store.put(&Group { changes }, kept).await.map_err(text)
}

async fn make(env: Env, disk: Rc<dyn Disk>, extents: u64) -> Result<String, String> {
    let below = disk;
    let disk: Rc<dyn Disk> = Rc::new(Sparse { below, solid: RefCell::default() });
    let (uuid, virtual_bytes) = (*b"a-very-big-store", Some(VOLUME_BYTES));
    let store = FormatOptions { uuid, segment_bytes: None, virtual_bytes, heads: None, disk: None };
    let volume = MkfsOptions {
        uuid,
        label: "large".into(),
        ..MkfsOptions::plain(VOLUME_BYTES, Profile::Ext2)
    };
    let made = volume::make_on_segments(env.clone(), disk.clone(), &store, &volume).await;
    made.map_err(|e| e.to_string())?;
    let store = Store::open(env, disk, OpenOptions::default()).await?;
    for n in (0..extents).step_by(TOGETHER as usize) {
        let some: Vec<Virt> = (n..extents.min(n + TOGETHER)).map(|n| nth(n, extents)).collect();
        put(&store, &some).await?;
    }
    store.close().await.map_err(|e| e.to_string())?;
    let (stats, memory) = (store.stats(), store.table_memory_bytes());
    Ok(format!(
        "{} blocks written, {} for the table, {} checkpoints; the table takes {memory} bytes",
        stats.written, stats.table_blocks, stats.checkpoints
    ))
}

async fn log(env: Env, disk: Rc<dyn Disk>, blocks: u64) -> Result<String, String> {
    // Nothing but what is asked for: the log is as long as it can be.
    let options = OpenOptions { cleaning: lfs::Cleaning::Off, ..OpenOptions::default() };
    let store = Store::open(env, disk, options).await?;
    let before = store.stats().checkpoints;
    let mut number = 0;
    for n in (0..blocks).step_by(TOGETHER as usize) {
        let some: Vec<Virt> = (n..n + TOGETHER).map(|n| nth(n, 10_000_000)).collect();
        number = put(&store, &some).await?;
    }
    store.flush_to(number).await.map_err(|e| e.to_string())?;
    let checkpoints = store.stats().checkpoints - before;
    Ok(format!("{blocks} blocks in the log, {checkpoints} checkpoints meanwhile"))
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, image, n] = args.as_slice() else {
        return Err("large_store make IMAGE EXTENTS, or log IMAGE BLOCKS".into());
    };
    let (image, n) = (Path::new(image), n.parse().map_err(|e| format!("{n}: {e}"))?);
    let makes = what == "make";
    let file = match makes {
        true => HostFile::create(image, IMAGE_BYTES)?,
        false => HostFile::open(image, false)?,
    };
    let done = drive(&[Arc::new(file)], 1, move |env| {
        let disk = env.port().disk(DiskId(0), IMAGE_BYTES);
        Box::pin(
            async move { if makes { make(env, disk, n).await } else { log(env, disk, n).await } },
        )
    })?;
    println!("{done}");
    Ok(())
}
