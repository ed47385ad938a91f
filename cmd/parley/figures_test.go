package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"parley/internal/config"
)

// Every figure of tools is on the page, with a home and without.
func TestMetricsOfTools(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"as it comes": nil,
		"with a home": func(c *config.Config) {
			file := t.TempDir() + "/c.toml"
			write(t, file, "[[mqtt.user]]\nname = \"home\"\npassword = \"lamp\"\npublish = [\"#\"]\nsubscribe = [\"#\"]\n")
			loaded, err := config.Load(file, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			c.MQTT.User = loaded.MQTT.User
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := start(t, change)
			resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", n.webPort()))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			page, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(page), "undeclared") {
				t.Errorf("a sample has no figure:\n%s", page)
			}
			for _, r := range toolReadings() {
				if len(r.read(n)) > 0 && !strings.Contains(string(page), "\nparley_"+r.Name) {
					t.Errorf("parley_%s is missing", r.Name)
				}
			}
		})
	}
}
