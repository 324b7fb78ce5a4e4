//! The ids by which records refer to each other: numbers, with one type for each kind of thing.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// No such thing: the id 0, which is never defined.
            pub const NONE: Self = Self(0);

            /// True if this is the id 0.
            pub fn is_none(self) -> bool {
                self.0 == 0
            }

            /// Returns the id as an index into a table with "none" as entry 0.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<u32> for $name {
            fn from(id: u32) -> Self {
                Self(id)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// Identifies an [`Image`](super::Image).
    ImageId
    /// Identifies a [`Frame`](super::Frame).
    FrameId
    /// Identifies a node of the calling context tree, see [`Nodes`](super::Nodes).
    NodeId
    /// Identifies a [`Task`](super::Task).
    TaskId
    /// Identifies an [`Event`](crate::Event).
    EventId
    /// Identifies a [`Function`](super::Function).
    FunctionId
    /// Identifies a [`SourceFile`](super::SourceFile).
    FileId
}
