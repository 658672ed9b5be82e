"""The sending half of a queue pair: from the doorbell to the completion."""
