// Package builtin is the tools that Parley brings along: the time, timers,
// alarms and reminders, the end of a conversation, roles, the device's volume
// and screen in plain words, and, where it is switched on, reading a web page.
//
// They are an MCP server like any other. It runs in this process, over the SDK's
// in-memory transport, and [Tools.Source] is its client. For which device a call
// is made travels beside the arguments, in params._meta, where a model cannot
// put it; a call without is refused.
//
// What is set lies in one file and outlives a restart. When something is due, it
// goes to the [House], which brings it to the device as well as it can be done at
// that moment. A device that is not there gets it with its next hello, for up to
// 24 hours. A notice is delivered at least once: if the machine dies in the
// second between delivering it and writing that down, it is delivered again.
package builtin
