//! Debug symbols for a build: the variables for cargo if a profile of Cargo.toml has none. Pure.

use toml_edit::{Item, Table};

/// The most profiles of which one inherits from the next; cargo refuses a cycle.
const MAX_PROFILES: usize = 32;

/// The environment variables that give a profile source lines, and keep its symbols in the executable.
/// They change no instruction. `line-tables-only` would be smaller, but an inlined method has no type in
/// its name then. Settings that the user has made with such a variable, also of a profile that this one
/// inherits from, stay as they are.
pub(super) fn variables(
    manifest: &Table,
    profile: &str,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(String, &'static str)> {
    let mut variables = Vec::new();
    if !has_lines(setting(manifest, profile, "debug", &is_set)) {
        variables.push((variable(profile, "debug"), "limited"));
    }
    if is_stripped(setting(manifest, profile, "strip", &is_set)) {
        variables.push((variable(profile, "strip"), "none"));
    }
    variables
}

/// Returns the name of the environment variable of a setting.
fn variable(profile: &str, key: &str) -> String {
    format!("CARGO_PROFILE_{profile}_{key}").to_uppercase().replace('-', "_")
}

/// A setting of a profile.
#[derive(Clone, Copy)]
enum Setting<'a> {
    /// In a variable, also of a profile that it inherits from.
    OfUser,
    /// In Cargo.toml, also of a profile that it inherits from.
    Given(&'a Item),
    /// The default of the profile `dev`.
    OfDev,
    /// The default of the profile `release`, or of one that does not exist.
    OfRelease,
}

/// Returns a setting of a profile.
fn setting<'a>(
    manifest: &'a Table,
    profile: &str,
    key: &str,
    is_set: impl Fn(&str) -> bool,
) -> Setting<'a> {
    let profiles = manifest.get("profile");
    let mut name = profile;
    for _ in 0..MAX_PROFILES {
        // A variable has precedence over Cargo.toml, but only for the profile that it names.
        if is_set(&variable(name, key)) {
            return Setting::OfUser;
        }
        let table = profiles.and_then(|profiles| profiles.get(name));
        if let Some(value) = table.and_then(|table| table.get(key)) {
            return Setting::Given(value);
        }
        let inherited = table.and_then(|table| table.get("inherits")).and_then(Item::as_str);
        name = match (name, inherited) {
            // These two inherit from none, and the next two need not say from which.
            ("dev", _) => return Setting::OfDev,
            ("release", _) => return Setting::OfRelease,
            ("test", _) => "dev",
            ("bench", _) => "release",
            (_, Some(inherited)) => inherited,
            (_, None) => return Setting::OfRelease,
        };
    }
    Setting::OfRelease
}

fn has_lines(debug: Setting<'_>) -> bool {
    match debug {
        Setting::Given(value) => match value.as_str() {
            Some(level) => !matches!(level, "none" | "line-directives-only"),
            // 1 is without variables, which a profile does not need.
            None => {
                value.as_bool() == Some(true) || value.as_integer().is_some_and(|level| level > 0)
            }
        },
        Setting::OfRelease => false,
        Setting::OfDev | Setting::OfUser => true,
    }
}

fn is_stripped(strip: Setting<'_>) -> bool {
    match strip {
        Setting::Given(value) => {
            value.as_bool() == Some(true) || value.as_str().is_some_and(|what| what != "none")
        }
        // cargo strips by default only without debug information.
        Setting::OfRelease | Setting::OfDev | Setting::OfUser => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml_edit::DocumentMut;

    fn names(manifest: &str, profile: &str) -> Vec<String> {
        let manifest: DocumentMut = manifest.parse().expect("TOML");
        variables(&manifest, profile, |_| false).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn profile_without_lines_gets_them() {
        let release = "CARGO_PROFILE_RELEASE_DEBUG";
        for manifest in ["", "[profile.release]\nlto = true", "[profile.release]\ndebug = 0"] {
            assert_eq!(names(manifest, "release"), [release], "{manifest}");
        }
        for level in ["true", "1", "2", "'line-tables-only'", "'limited'", "'full'"] {
            let manifest = format!("[profile.release]\ndebug = {level}");
            assert!(names(&manifest, "release").is_empty(), "{level}");
        }
        assert!(names("", "dev").is_empty() && names("", "test").is_empty());
        assert_eq!(names("[profile.dev]\ndebug = false", "test"), ["CARGO_PROFILE_TEST_DEBUG"]);
    }

    #[test]
    fn setting_of_inherited_profile_counts() {
        let manifest = "[profile.release]\ndebug = true\nstrip = 'symbols'\n\
            [profile.my-fast]\ninherits = 'release'\n[profile.a]\ninherits = 'b'\n[profile.b]\ninherits = 'a'";
        assert_eq!(names(manifest, "my-fast"), ["CARGO_PROFILE_MY_FAST_STRIP"]);
        assert_eq!(names(manifest, "bench"), ["CARGO_PROFILE_BENCH_STRIP"]);
        assert_eq!(names(manifest, "a"), ["CARGO_PROFILE_A_DEBUG"]);
    }

    #[test]
    fn variable_of_the_user_stays() {
        let is_set = |name: &str| name == "CARGO_PROFILE_RELEASE_DEBUG";
        let manifest =
            "[profile.fast]\ninherits = 'release'\n[profile.slow]\ninherits = 'release'\ndebug = 0";
        let manifest: DocumentMut = manifest.parse().expect("TOML");
        for profile in ["release", "bench", "fast"] {
            assert!(variables(&manifest, profile, is_set).is_empty(), "{profile}");
        }
        // The setting of the profile itself is nearer.
        assert_eq!(variables(&manifest, "slow", is_set)[0].0, "CARGO_PROFILE_SLOW_DEBUG");
    }
}
