//! The first mistake in the settings of a value.

use super::ConfigError;

/// The first mistake of a value whose setters return no `Result`: the one that its author has to correct first.
///
/// Boxed, because most values have none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct FirstMistake(Option<Box<ConfigError>>);

impl FirstMistake {
    pub(crate) const NONE: Self = Self(None);

    /// Keeps a mistake, unless there is one.
    pub(crate) fn add(&mut self, mistake: ConfigError) {
        self.0.get_or_insert_with(|| Box::new(mistake));
    }

    /// This mistake if it is one of `present`, otherwise the first of them: for settings that a later one may mend.
    pub(crate) fn of(&self, present: Vec<ConfigError>) -> Self {
        let kept = present.iter().position(|mistake| self.0.as_deref() == Some(mistake));
        Self(present.into_iter().nth(kept.unwrap_or(0)).map(Box::new))
    }

    /// Returns the value of a setting, or keeps its mistake.
    pub(crate) fn keep<T>(&mut self, setting: Result<T, ConfigError>) -> Option<T> {
        setting.map_err(|mistake| self.add(mistake)).ok()
    }

    /// The mistake as the error of a value that has one.
    #[inline]
    pub(crate) fn found(&self) -> Result<(), ConfigError> {
        self.0.as_deref().map_or(Ok(()), |mistake| Err(mistake.clone()))
    }
}
