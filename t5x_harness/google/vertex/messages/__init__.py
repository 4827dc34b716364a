"""Names, filters, orders, pages and masks of messages, and the five methods that every resource has."""
