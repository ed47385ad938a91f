// Package config reads Parley's one configuration file.
//
// [Default] is the whole configuration, built in; a file overlays it, key by
// key, and config.toml at the root of the repository is that default written
// out with every key explained. [Load] is a function of a file and an
// environment: it keeps nothing, starts nothing and talks to no network, so a
// reload is a second call whose result replaces the first, or whose error
// leaves it in place.
//
// Every fault of a file is reported at once, each as an [Error] with the line it
// stands on and what to do about it. Unknown keys are faults, because a misspelt
// key that is silently ignored costs its owner an evening.
package config
