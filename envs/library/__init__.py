"""The environments that come with agar; each module is imported when its environment is first made."""
