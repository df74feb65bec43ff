package ctl

import (
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

var groups = kind{noun: "group", argument: "GROUP", example: "shop-team", list: (*session).listGroups,
	path: func(name string) (string, error) { return "/group/" + url.PathEscape(name), id("group", name) },
	verbs: []verb{pause("accept no messages in the channels of a group"),
		resume("accept messages in the channels of a group again"), remove("delete a group that no channel carries")},
	set: "broker ctl group set shop-team maxChannels=20 publishRate=1000/1s"}

func (s *session) listGroups() *cobra.Command {
	var limit int
	return listLimit(leaf{use: "ls", about: "list the groups of channels", examples: "broker ctl group ls",
		run: func(c *cobra.Command, _ []string) error {
			t := s.table("GROUP", "NAME", "STATE", "CHANNELS", "MAX CHANNELS", "PUBLISH RATE")
			return s.each(c, "/groups", nil, limit, t, func(raw json.RawMessage) error {
				var g struct {
					ID, Name, State, PublishRate string
					Channels, MaxChannels        int
				}
				if err := json.Unmarshal(raw, &g); err != nil {
					return err
				}
				most := ""
				if g.MaxChannels > 0 {
					most = strconv.Itoa(g.MaxChannels)
				}
				t.row(raw, g.ID, g.Name, g.State, strconv.Itoa(g.Channels), most, g.PublishRate)
				return t.err
			})
		}}.command(), &limit)
}
