"""The panels of the page: streamlit only. What they show is computed in the rooms above."""
