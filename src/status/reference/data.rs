//! Explains the reasons of the conditions about data: `Warm`, `Fresh` and `WithinLimits`.

use super::{GRANT, NOTHING, RAISE, ReasonRow, WAIT};
use crate::status::reasons::ConditionReason;

/// The reasons, sorted by condition and then by severity, the most severe reason first.
pub(super) const DATA: &[ReasonRow] = &[
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::Forbidden,
        "The API server refuses the first list or its watch.",
        GRANT,
    )
    .with_events("PermissionsMissing", Some("PermissionsGranted")),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::ResourceNotFound,
        "The API server does not serve the kind, or the kind has no list or watch.",
        "Install the CRD or API service.",
    ),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::NamespaceNotFound,
        "A namespace of the target does not exist.",
        "Create the namespace, or remove it from the scope.",
    )
    .with_events("NamespaceNotFound", None),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::ServerUnreachable,
        "The API server does not answer, or answers with errors.",
        "Check the API server and the network if this lasts.",
    ),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::StreamTimedOut,
        "The first list makes no progress.",
        "Check the API server and the network.",
    ),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::Syncing,
        "The first list waits or is under way.",
        WAIT,
    ),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::Paused,
        "The profile was paused before the first list was complete.",
        "Set `spec.mode` to `Active`.",
    ),
    ReasonRow::new(
        "Warm",
        "False",
        ConditionReason::Plan,
        "`spec.mode` is `Plan`: kubewarm lists nothing.",
        "Set `spec.mode` to `Active`.",
    ),
    ReasonRow::new(
        "Warm",
        "Unknown",
        ConditionReason::Pending,
        "kubewarm waits for discovery, or a limit stopped the target.",
        "Look at `Accepted` and `WithinLimits`.",
    ),
    ReasonRow::new(
        "Warm",
        "True",
        ConditionReason::Synced,
        "Every required target has a complete list.",
        NOTHING,
    ),
    ReasonRow::new(
        "Fresh",
        "False",
        ConditionReason::ServerUnreachable,
        "The API server does not answer, or answers with errors.",
        "Check the API server and the network if this lasts.",
    ),
    ReasonRow::new(
        "Fresh",
        "False",
        ConditionReason::WatchSilent,
        "For longer than `maxStalenessSeconds`, kubewarm could not confirm the store, or it closed the watch.",
        "Wait for the new watch; if the profile is paused, set `spec.mode` to `Active`.",
    ),
    ReasonRow::new(
        "Fresh",
        "False",
        ConditionReason::Relisting,
        "kubewarm lists the objects again and serves the old data meanwhile.",
        WAIT,
    ),
    ReasonRow::new(
        "Fresh",
        "False",
        ConditionReason::Reconnecting,
        "The watch ended more than 5 seconds ago and is not open again.",
        WAIT,
    ),
    ReasonRow::new(
        "Fresh",
        "Unknown",
        ConditionReason::NotWarm,
        "No complete list has been read so far.",
        "Look at `Warm`.",
    ),
    ReasonRow::new(
        "Fresh",
        "True",
        ConditionReason::WatchesCurrent,
        "The data of all required targets is known to be current.",
        NOTHING,
    ),
    ReasonRow::new(
        "WithinLimits",
        "False",
        ConditionReason::MemoryExceeded,
        "The target needs more memory than a limit allows.",
        RAISE,
    )
    .with_events("LimitExceeded", Some("WithinLimits")),
    ReasonRow::new(
        "WithinLimits",
        "False",
        ConditionReason::LimitExceeded,
        "The profile exceeds the limits on profiles, so nothing of it runs.",
        "Look at `Accepted`.",
    ),
    ReasonRow::new(
        "WithinLimits",
        "False",
        ConditionReason::ObjectsExceeded,
        "The target has more objects than a limit allows.",
        RAISE,
    )
    .with_events("LimitExceeded", Some("WithinLimits")),
    ReasonRow::new(
        "WithinLimits",
        "Unknown",
        ConditionReason::Measuring,
        "The size is not known before the first complete list.",
        WAIT,
    ),
    ReasonRow::new(
        "WithinLimits",
        "True",
        ConditionReason::BelowLimits,
        "No limit stopped a required target.",
        NOTHING,
    ),
];
