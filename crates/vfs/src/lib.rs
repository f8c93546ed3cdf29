//! What is being asked: requests, replies, access checks, the door.
