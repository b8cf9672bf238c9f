"""The pages for people: server-rendered, without a build step, and complete without JavaScript."""
