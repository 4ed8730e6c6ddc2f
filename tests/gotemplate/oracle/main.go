// The oracle answers what Go's own text/template with sprig makes of a template.
//
// It reads one request for each line of standard input and writes one answer for each. Whole numbers in the data become
// int64 and numbers with a point or an exponent become float64, which is how the engine under test takes them.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

type source struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

type request struct {
	ID         int             `json:"id"`
	Templates  []source        `json:"templates"`
	Data       json.RawMessage `json:"data"`
	MissingKey string          `json:"missingkey"`
	Left       string          `json:"left"`
	Right      string          `json:"right"`
	Plain      bool            `json:"plain"`
	Repeat     int             `json:"repeat"`
	List       bool            `json:"list"`
}

type answer struct {
	ID        int               `json:"id"`
	Output    string            `json:"output"`
	Error     string            `json:"error,omitempty"`
	Kind      string            `json:"kind"`
	Seconds   float64           `json:"seconds,omitempty"`
	Functions map[string]string `json:"functions,omitempty"`
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var asked request
			if err := json.Unmarshal(line, &asked); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			encoded, _ := json.Marshal(answerTo(asked))
			out.Write(append(encoded, '\n'))
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}

func answerTo(asked request) (given answer) {
	given = answer{ID: asked.ID, Kind: "ok"}
	defer func() {
		if failure := recover(); failure != nil {
			given.Kind, given.Error = "panic", fmt.Sprint(failure)
		}
	}()
	if asked.List {
		given.Functions = functionTypes()
		return given
	}
	data, err := decode(asked.Data)
	if err != nil {
		given.Kind, given.Error = "request", err.Error()
		return given
	}
	root := template.New(asked.Templates[0].Name).Delims(asked.Left, asked.Right)
	if asked.MissingKey != "" {
		root.Option("missingkey=" + asked.MissingKey)
	}
	if !asked.Plain {
		root.Funcs(sprig.TxtFuncMap()).Funcs(helm(root))
	}
	for index, one := range asked.Templates {
		into := root
		if index > 0 {
			into = root.New(one.Name)
		}
		if _, err := into.Parse(one.Text); err != nil {
			given.Kind, given.Error = "parse", err.Error()
			return given
		}
	}
	var written bytes.Buffer
	started := time.Now()
	for round := 0; round <= asked.Repeat; round++ {
		written.Reset()
		if err := root.Execute(&written, data); err != nil {
			given.Kind, given.Error = "exec", err.Error()
			return given
		}
	}
	given.Seconds = time.Since(started).Seconds() / float64(asked.Repeat+1)
	given.Output = base64.StdEncoding.EncodeToString(written.Bytes())
	return given
}

func functionTypes() map[string]string {
	types := map[string]string{}
	for name, function := range sprig.TxtFuncMap() {
		types[name] = fmt.Sprintf("%T", function)
	}
	return types
}

// helm are the functions that Helm adds, as its documentation describes them.
func helm(root *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var written strings.Builder
			err := root.ExecuteTemplate(&written, name, data)
			return written.String(), err
		},
		"tpl": func(text string, data interface{}) (string, error) {
			copied, err := root.Clone()
			if err != nil {
				return "", err
			}
			parsed, err := copied.New("gotpl").Parse(text)
			if err != nil {
				return "", fmt.Errorf("cannot parse template %q: %w", text, err)
			}
			var written strings.Builder
			err = parsed.Execute(&written, data)
			return written.String(), err
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return value, fmt.Errorf("%s", message)
			}
			return value, nil
		},
		"toYaml": func(value interface{}) string {
			text, err := yaml.Marshal(value)
			if err != nil {
				return ""
			}
			return strings.TrimSuffix(string(text), "\n")
		},
		"fromYaml": func(text string) map[string]interface{} {
			read := map[string]interface{}{}
			if err := yaml.Unmarshal([]byte(text), &read); err != nil {
				read["Error"] = err.Error()
			}
			return read
		},
		"fromYamlArray": func(text string) []interface{} {
			read := []interface{}{}
			if err := yaml.Unmarshal([]byte(text), &read); err != nil {
				read = []interface{}{err.Error()}
			}
			return read
		},
		"fromJsonArray": func(text string) []interface{} {
			read := []interface{}{}
			if err := json.Unmarshal([]byte(text), &read); err != nil {
				read = []interface{}{err.Error()}
			}
			return read
		},
	}
}

func decode(raw json.RawMessage) (interface{}, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value interface{}
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return typed(value)
}

func typed(value interface{}) (interface{}, error) {
	switch value := value.(type) {
	case json.Number:
		if strings.ContainsAny(string(value), ".eE") {
			return value.Float64()
		}
		return value.Int64()
	case []interface{}:
		for index, element := range value {
			converted, err := typed(element)
			if err != nil {
				return nil, err
			}
			value[index] = converted
		}
		return value[:len(value):len(value)], nil
	case map[string]interface{}:
		for key, element := range value {
			converted, err := typed(element)
			if err != nil {
				return nil, err
			}
			value[key] = converted
		}
	}
	return value, nil
}
