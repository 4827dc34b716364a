"""Protobuf messages by their fields: names, filters, orders, pages, masks, and the five methods of every resource."""
