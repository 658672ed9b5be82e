"""The receive side: from a plane's port to memory, and the answers that go back."""
