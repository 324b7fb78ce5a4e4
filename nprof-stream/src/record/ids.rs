//! The ids by which records name each other: numbers, one type for each kind of thing.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// No such thing: the id 0, which is never defined.
            pub const NONE: Self = Self(0);

            /// Whether this is the id 0.
            pub fn is_none(self) -> bool {
                self.0 == 0
            }

            /// The id as an index into a table whose entry 0 stands for "none".
            pub fn index(self) -> usize {
                self.0 as usize
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
    /// Names an [`Image`](super::Image).
    ImageId
    /// Names a [`Frame`](super::Frame).
    FrameId
    /// Names one node of the calling context tree, see [`Nodes`](super::Nodes).
    NodeId
    /// Names a [`Task`](super::Task).
    TaskId
    /// Names an [`Event`](crate::Event).
    EventId
    /// Names a [`Function`](super::Function).
    FunctionId
    /// Names a [`SourceFile`](super::SourceFile).
    FileId
}
