//! Which object is meant: names, directories, one operation a file.
