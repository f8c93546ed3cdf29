//! NFSv3 and MOUNT over TCP.
