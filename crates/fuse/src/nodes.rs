//! Inodes' numbers as FUSE has them: its root is node 1, whatever number the volume's root has.

/// Node 1, FUSE's root.
const ROOT: u64 = 1;

/// The volume's root, by its inode's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes(pub(crate) u32);

impl Nodes {
    /// FUSE's number of an inode. The root's and inode 1, which no volume shows, change places.
    pub(crate) fn node(self, ino: u32) -> u64 {
        match u64::from(ino) {
            _ if ino == self.0 => ROOT,
            ROOT => u64::from(self.0),
            other => other,
        }
    }

    /// The inode of a node; 0, which is none, for a number that no inode can have.
    pub(crate) fn ino(self, node: u64) -> u32 {
        match u32::try_from(node) {
            Ok(ino) => self.node(ino) as u32,
            Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_is_the_same() {
        for root in [1, 2, 128, u32::MAX] {
            let nodes = Nodes(root);
            assert_eq!((nodes.node(root), nodes.ino(1)), (1, root));
            for ino in [1, 2, 3, 128, u32::MAX] {
                assert_eq!(nodes.ino(nodes.node(ino)), ino, "root {root}");
            }
            assert_eq!((nodes.ino(0), nodes.ino(1 << 32), nodes.ino(u64::MAX)), (0, 0, 0));
        }
    }
}
