//! The categories of frames, which decide on their colours.

use crate::model::Category;

/// The categories, in the order of their numbers.
pub(super) const CATEGORIES: [(Category, &str, &str); 4] = [
    (Category::User, "User", "yellow"),
    (Category::Kernel, "Kernel", "orange"),
    (Category::Jit, "JIT", "blue"),
    (Category::Mark, "Incomplete", "grey"),
];

/// Returns the number of a category.
pub(super) fn category_number(category: Category) -> usize {
    CATEGORIES.iter().position(|(known, ..)| *known == category).unwrap_or_default()
}
