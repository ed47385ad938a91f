// Package vision is where devices with a camera send their pictures: they post one
// with a question and get the answer as the result of their tool.
//
// A device is told the address and a token in MCP initialize. Its tool takes a
// picture, posts it here and hands on what comes back without reading it, so
// the answer is for a model, or for a rule that names result:
//
//	{"success":true,"result":"A cat on a chair."}
//	{"success":false,"message":"I could not look at the picture."}
//
// Firmware turns any status but 200 into a failed call that tells nothing of the
// reason. So status 200 with success false is for what the user or the model may
// act on, and everything that an operator must put right has a status of its own
// and a line in the log.
//
// Looking at the picture is an [Explainer]'s job; this package only sees to it
// that there is one picture, that it is one, and that it comes from a device
// that may ask. Nothing is stored, and neither question nor answer is logged.
package vision
