package mcp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"parley/mcp"
)

// TestHostileRepliesDoNotOutliveTheirCall sends rubbish around, or in place of,
// the reply to one call. Whatever became of that call, the next one works.
func TestHostileRepliesDoNotOutliveTheirCall(t *testing.T) {
	answered := func(text string) func(mcp.Result, error) bool {
		return func(r mcp.Result, err error) bool { return err == nil && !r.IsError && r.Text == text }
	}
	refused := func(text string) func(mcp.Result, error) bool {
		return func(r mcp.Result, err error) bool { return err == nil && r.IsError && r.Text == text }
	}
	failed := func(text string) func(mcp.Result, error) bool {
		return func(r mcp.Result, err error) bool { return err != nil && strings.Contains(err.Error(), text) }
	}
	instead := func(format string) func(int64, string) []string {
		return func(id int64, _ string) []string { return []string{fmt.Sprintf(format, id)} }
	}
	before := func(format string) func(int64, string) []string {
		return func(id int64, reply string) []string {
			return []string{strings.ReplaceAll(format, "%d", fmt.Sprint(id)), reply}
		}
	}
	timedOut := failed("no answer within 10s")
	for name, test := range map[string]struct {
		mangle func(id int64, reply string) []string
		want   func(mcp.Result, error) bool
	}{
		"rubbish before":            {before(`[1,2,3]`), answered("true")},
		"number before":             {before(`7`), answered("true")},
		"null before":               {before(`null`), answered("true")},
		"id null before":            {before(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`), answered("true")},
		"no id before":              {before(`{"jsonrpc":"2.0","result":{}}`), answered("true")},
		"string id before":          {before(`{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}`), answered("true")},
		"object id before":          {before(`{"jsonrpc":"2.0","id":{"n":%d},"result":{}}`), answered("true")},
		"huge id before":            {before(`{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}`), answered("true")},
		"another call's id before":  {before(`{"jsonrpc":"2.0","id":1%d,"result":{"content":[]}}`), answered("true")},
		"a request before":          {before(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{}}`), answered("true")},
		"a ping before":             {before(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`), answered("true")},
		"a notification before":     {before(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`), answered("true")},
		"doubled":                   {func(_ int64, r string) []string { return []string{r, r, r} }, answered("true")},
		"never":                     {func(int64, string) []string { return nil }, timedOut},
		"wrong id only":             {instead(`{"jsonrpc":"2.0","id":4%d,"result":{}}`), timedOut},
		"invalid JSON only":         {instead(`{"jsonrpc":"2.0","id":%d,"error":{"message":"a "quoted" word"}}`), refused(`a "quoted" word`)},
		"neither result nor error":  {instead(`{"jsonrpc":"2.0","id":%d}`), failed("neither result nor error")},
		"both null":                 {instead(`{"jsonrpc":"2.0","id":%d,"result":null,"error":null}`), failed("neither result nor error")},
		"error and null result":     {instead(`{"jsonrpc":"2.0","id":%d,"result":null,"error":{"message":"no"}}`), refused("no")},
		"error without code":        {instead(`{"jsonrpc":"2.0","id":%d,"error":{"message":"no"}}`), refused("no")},
		"error with string code":    {instead(`{"jsonrpc":"2.0","id":%d,"error":{"code":"E7","message":"no"}}`), refused("no")},
		"error is a string":         {instead(`{"jsonrpc":"2.0","id":%d,"error":"no"}`), refused("no")},
		"error message is a number": {instead(`{"jsonrpc":"2.0","id":%d,"error":{"message":5}}`), refused("5")},
		"error is empty":            {instead(`{"jsonrpc":"2.0","id":%d,"error":{}}`), refused("{}")},
		"result is a string":        {instead(`{"jsonrpc":"2.0","id":%d,"result":"done"}`), answered("done")},
		"result is an array":        {instead(`{"jsonrpc":"2.0","id":%d,"result":[{"type":"text","text":"a"},7]}`), answered("a\n7")},
		"result is empty":           {instead(`{"jsonrpc":"2.0","id":%d,"result":{}}`), answered("")},
		"content is one entry":      {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":{"type":"text","text":"a"}}}`), answered("a")},
		"content is null":           {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":null}}`), answered("")},
		"content of nulls":          {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[null]}}`), answered("[unreadable content]")},
		"text is a number":          {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":42}]}}`), answered("42")},
		"text is an object":         {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":{"a":1}}]}}`), answered(`{"a":1}`)},
		"isError is a string":       {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[],"isError":"yes"}}`), answered("")},
		"isError":                   {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"no"}],"isError":true}}`), refused("no")},
		"structured only":           {instead(`{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"a":[1]}}}`), answered(`{"a":[1]}`)},
		"asks for input":            {instead(`{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","inputRequests":{"a":{}},"content":[]}}`), refused("the tool asks for input that nobody can give")},
		"unknown content":           {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"smell"},{"type":"text","text":"b"}]}}`), answered("[smell content]\nb")},
		"no version":                {instead(`{"id":%d,"result":{"content":[{"type":"text","text":"a"}]}}`), answered("a")},
		"deep":                      {instead(`{"jsonrpc":"2.0","id":%d,"result":{"content":[` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `]}}`), answered(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "tool"})
				start(t, d)
				f.mangle = test.mangle
				if res, err := d.Call(t.Context(), "tool", nil); !test.want(res, err) {
					t.Errorf("got %+v, %v", res, err)
				}
				synctest.Wait() // for what comes after the reply
				f.mangle = nil
				if res, err := d.Call(t.Context(), "tool", nil); err != nil || res.Text != "true" {
					t.Errorf("the next call: %+v, %v", res, err)
				}
				if n := strings.Count(f.methods(), "initialize "); n != 1 {
					t.Errorf("the device was initialized %d times", n)
				}
			})
		})
	}
}

func TestLongResultIsCutAtACharacter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("é", 1<<19) // 1 MiB
		_, d := newFakeDevice(t, mcp.Config{ResultLimit: 1000}, fakeTool{name: "long", run: waits(0, text)})
		start(t, d)
		res, err := d.Call(t.Context(), "long", nil)
		if err != nil || len(res.Text) > 1000 || len(res.Text) < 990 {
			t.Fatalf("%d bytes, %v", len(res.Text), err)
		}
		if !utf8.ValidString(res.Text) || !strings.HasSuffix(res.Text, "é… [truncated]") {
			t.Errorf("ends in %q", res.Text[len(res.Text)-20:])
		}
	})
}

func TestImages(t *testing.T) {
	for name, test := range map[string]struct {
		content, text string
		images        int
	}{
		"standard":          {`{"type":"image","mimeType":"image/jpeg","data":"/9j/"}`, "[image image/jpeg, 3 bytes]", 1},
		"firmware":          {`{"type":"image","image":"{\"type\":\"image\",\"mimeType\":\"image/jpeg\",\"data\":\"/9j/\"}"}`, "[image image/jpeg, 3 bytes]", 1},
		"firmware, broken":  {`{"type":"image","image":"{\"type\":\"im"}`, "[unreadable image]", 0},
		"not base64":        {`{"type":"image","mimeType":"image/jpeg","data":"%%%%"}`, "[unreadable image]", 0},
		"empty":             {`{"type":"image"}`, "[unreadable image]", 0},
		"more than allowed": {`{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", 100) + `"}`, "[image image/png, 300 bytes]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d := newFakeDevice(t, mcp.Config{ImageLimit: 256}, fakeTool{name: "tool"})
				f.mangle = func(id int64, _ string) []string {
					return []string{fmt.Sprintf(`{"id":%d,"result":{"content":[%s]}}`, id, test.content)}
				}
				start(t, d)
				res, err := d.Call(t.Context(), "tool", nil)
				if err != nil || res.Text != test.text || len(res.Images) != test.images {
					t.Fatalf("%+v, %v", res, err)
				}
				for _, image := range res.Images {
					if image.MIMEType != "image/jpeg" || string(image.Data) != "\xff\xd8\xff" {
						t.Errorf("%+v", image)
					}
				}
			})
		})
	}
}

// listDevice answers the nth tools/list with page(n); "" is silence.
func listDevice(t *testing.T, page func(n int) string) (f *fakeDevice, d *mcp.Device) {
	t.Helper()
	f, d = newFakeDevice(t, mcp.Config{})
	asked := 0
	f.override = func(method string) (string, bool) {
		if method != "tools/list" {
			return "", false
		}
		asked++
		return page(asked), true
	}
	return f, d
}

// listings counts how often the client asked for tools.
func (f *fakeDevice) listings() int { return strings.Count(f.methods(), "tools/list") }

func TestListingsThatDoNotEnd(t *testing.T) {
	tool := func(name string, size int) string {
		return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, strings.Repeat("x", size))
	}
	for name, test := range map[string]struct {
		page         func(n int) string
		asked, tools int
	}{
		"same cursor": {func(n int) string {
			return `"result":{"tools":[` + tool(fmt.Sprint("t", n), 1) + `],"nextCursor":"again"}`
		}, 2, 2},
		"a circle of two": {func(n int) string {
			return `"result":{"tools":[` + tool(fmt.Sprint("t", n%2), 1) + fmt.Sprintf(`],"nextCursor":"c%d"}`, n%2)
		}, 3, 2},
		"new cursors for ever": {func(n int) string {
			return `"result":{"tools":[` + tool(fmt.Sprint("t", n), 1) + fmt.Sprintf(`],"nextCursor":"c%d"}`, n)
		}, 64, 64},
		"too many tools": {func(n int) string {
			var all []string
			for i := range 100 {
				all = append(all, tool(fmt.Sprintf("t%d.%d", n, i), 1))
			}
			return `"result":{"tools":[` + strings.Join(all, ",") + fmt.Sprintf(`],"nextCursor":"c%d"}`, n)
		}, 6, 512},
		"too many bytes": {func(n int) string {
			return `"result":{"tools":[` + tool(fmt.Sprint("t", n), 60<<10) + fmt.Sprintf(`],"nextCursor":"c%d"}`, n)
		}, 18, 17},
		"an error on the second page": {func(n int) string {
			if n == 1 {
				return `"result":{"tools":[` + tool("t", 1) + `],"nextCursor":"big"}`
			}
			return `"error":{"message":"Failed to add tool big because of payload size limit"}`
		}, 2, 1},
		"cursor null":     {func(int) string { return `"result":{"tools":[` + tool("t", 1) + `],"nextCursor":null}` }, 1, 1},
		"cursor empty":    {func(int) string { return `"result":{"tools":[` + tool("t", 1) + `],"nextCursor":""}` }, 1, 1},
		"cursor a number": {func(int) string { return `"result":{"tools":[` + tool("t", 1) + `],"nextCursor":7}` }, 1, 1},
		"no tools":        {func(int) string { return `"result":{"tools":[]}` }, 1, 0},
		"tools null":      {func(int) string { return `"result":{"tools":null}` }, 1, 0},
		"doubled names":   {func(int) string { return `"result":{"tools":[` + tool("t", 1) + "," + tool("t", 2) + `]}` }, 1, 1},
		"odd tools": {func(int) string {
			return `"result":{"tools":[null,7,"x",{},{"name":7},{"name":""},{"name":"` + strings.Repeat("n", 300) + `"},
				{"name":"a","description":7,"inputSchema":null,"annotations":"x"},
				{"name":"b","inputSchema":[],"annotations":{"audience":7}},
				{"name":"c","inputSchema":"object","annotations":{"audience":["user","assistant"]}}]}`
		}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d := listDevice(t, test.page)
				start(t, d)
				tools := d.Tools()
				if f.listings() != test.asked || len(tools) != test.tools {
					t.Errorf("asked %d times for %d tools, want %d, %d", f.listings(), len(tools), test.asked, test.tools)
				}
				for _, tool := range tools {
					if !strings.HasPrefix(string(tool.Schema), `{"type":"object"`) || tool.UserOnly {
						t.Errorf("%+v", tool)
					}
				}
			})
		})
	}
}

func TestListingIsRepeatedWhereItFailed(t *testing.T) {
	for name, bad := range map[string]string{
		"error at once":    `"error":{"message":"no"}`,
		"result no object": `"result":5`,
		"tools no array":   `"result":{"tools":{}}`,
		"silence":          "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d := listDevice(t, func(n int) string {
					if n < 3 {
						return bad
					}
					return `"result":{"tools":[{"name":"t"}]}`
				})
				d.Start()
				time.Sleep(time.Minute)
				if f.listings() != 3 || len(d.Tools()) != 1 {
					t.Errorf("asked %d times for %d tools", f.listings(), len(d.Tools()))
				}
			})
		})
	}
}

func TestOddInitializeResults(t *testing.T) {
	for _, result := range []string{
		`{}`, `5`, `[]`, `"2024-11-05"`,
		`{"protocolVersion":"1999-01-01","capabilities":[],"serverInfo":"me"}`,
		`{"protocolVersion":7,"serverInfo":{"name":7,"version":[]}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			f, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "tool"})
			f.override = func(method string) (string, bool) {
				return `"result":` + result, method == "initialize"
			}
			start(t, d)
			if _, err := d.Call(t.Context(), "tool", nil); err != nil {
				t.Errorf("initialize %s: %v", result, err)
			}
		})
	}
}

func TestUninvitedMessagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		f, d := newFakeDevice(t, mcp.Config{Counters: &counters}, fakeTool{name: "slow", run: waits(time.Second, "")})
		start(t, d)
		d.Receive(json.RawMessage(`{"id":5,"result":{}}`)) // nothing is awaited
		d.Receive(nil)
		go func() { _, _ = d.Call(t.Context(), "slow", nil) }()
		synctest.Wait()
		d.Receive(json.RawMessage(`{"id":5,"result":{}}`)) // something else is
		d.Receive(nil)
		d.Receive(json.RawMessage(`{`))
		if u, m := counters.Unexpected.Load(), counters.Malformed.Load(); u != 2 || m != 3 {
			t.Errorf("unexpected %d, malformed %d", u, m)
		}
		f.busy(0)
		time.Sleep(2 * time.Second)
	})
}
