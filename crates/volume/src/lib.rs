//! Opens, makes, recovers and repairs volumes.
