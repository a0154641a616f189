//! Valid and invalid `Authorization` headers.

use super::difference::Difference;

/// The `Authorization` headers of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Authorization {
    Token,
    LowerCase,
    UpperCase,
    Missing,
    Empty,
    NoToken,
    OtherScheme,
    TwoSpaces,
    WrongToken,
    WordAfterToken,
    Repeated,
    WrongTokenFirst,
}

impl Authorization {
    pub(super) const ALL: &[Self] = &[
        Self::Token,
        Self::LowerCase,
        Self::UpperCase,
        Self::Missing,
        Self::Empty,
        Self::NoToken,
        Self::OtherScheme,
        Self::TwoSpaces,
        Self::WrongToken,
        Self::WordAfterToken,
        Self::Repeated,
        Self::WrongTokenFirst,
    ];

    /// The values of the headers.
    pub(super) fn values(self, token: &str) -> Vec<String> {
        const WRONG: &str = "Bearer wrong";
        let valid = format!("Bearer {token}");
        match self {
            Self::Token => vec![valid],
            Self::LowerCase => vec![format!("bearer {token}")],
            Self::UpperCase => vec![format!("BEARER {token}")],
            Self::Missing => Vec::new(),
            Self::Empty => vec![String::new()],
            Self::NoToken => vec!["Bearer".to_owned()],
            Self::OtherScheme => vec![format!("Basic {token}")],
            Self::TwoSpaces => vec![format!("Bearer  {token}")],
            Self::WrongToken => vec![WRONG.to_owned()],
            Self::WordAfterToken => vec![format!("{valid} more")],
            Self::Repeated => vec![valid.clone(), valid],
            Self::WrongTokenFirst => vec![WRONG.to_owned(), valid],
        }
    }

    /// The permitted differences between the responses of both servers to a request with these
    /// headers.
    pub(super) fn differences(self) -> &'static [Difference] {
        match self {
            Self::Token | Self::LowerCase | Self::UpperCase => &[],
            Self::Missing | Self::Empty | Self::NoToken | Self::OtherScheme | Self::TwoSpaces => {
                &[Difference::Anonymous]
            }
            Self::WrongToken => &[Difference::CheckedFirst],
            Self::WordAfterToken | Self::Repeated | Self::WrongTokenFirst => {
                &[Difference::OneToken]
            }
        }
    }
}
